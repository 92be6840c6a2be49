"""Worker processes: how they start, what they print, how they ended."""
