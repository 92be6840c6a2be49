"""Make the text of emitted modules: index functions, docstrings, rendering, support modules, single
files."""
