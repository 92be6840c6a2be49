"""The command line: one file a command, over the same descriptions that Python takes."""
