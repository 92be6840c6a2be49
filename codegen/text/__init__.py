"""Make the text of emitted modules: index functions, docstrings, templates, support modules,
single files."""
