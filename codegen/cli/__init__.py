"""The command line: one file per command; commands read the same descriptions as the Python API."""

from shardwright.codegen.cli.app import app, main

__all__ = ["app", "main"]
