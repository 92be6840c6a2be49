"""From plans to texts: contexts, docstrings, index functions, bundles, what is on disk."""
