"""Learn layouts from loaders, and compare layouts and loaders."""
