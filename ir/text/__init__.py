"""Parse texts to objects: the grammar, its parser, and errors with a caret."""
