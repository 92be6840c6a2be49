"""From plans to texts: contexts, docstrings, index functions, bundles, files on disk."""
