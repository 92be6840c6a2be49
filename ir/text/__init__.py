"""Texts to objects and back: the grammar, its parser, and errors with a caret."""
