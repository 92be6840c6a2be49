"""The communication of a user's compiled program, and how much of it is redundant."""
