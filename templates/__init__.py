"""Jinja templates for emitted code, readable as the kernels they become. Imports nothing."""
