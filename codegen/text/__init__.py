"""The text of emitted modules: index functions, docstrings, rendering, support, single files."""
