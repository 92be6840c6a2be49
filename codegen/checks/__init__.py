"""The oracle, and the checks of modules that need no backend."""
