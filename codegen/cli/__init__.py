"""The command line: one file a command, over the same descriptions that Python takes."""

from shardwright.codegen.cli.app import app, main

__all__ = ["app", "main"]
