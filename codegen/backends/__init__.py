"""The backends: one folder each, and a line in `registry`."""
