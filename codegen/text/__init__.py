"""Descriptions of modules: index functions, docstrings, rendering, support, single files."""
