"""The backends: a folder each, and a line in `registry`."""
