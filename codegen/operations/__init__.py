"""The kinds of bundles: one file per kind of operation, and one for groups."""
