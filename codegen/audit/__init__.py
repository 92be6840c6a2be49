"""Communication of a user's compiled program, and its redundant part."""
