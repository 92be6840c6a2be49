"""The backends. Each has a folder here and an entry in `registry`."""
