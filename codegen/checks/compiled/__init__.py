"""Jobs and reports of compilers."""
