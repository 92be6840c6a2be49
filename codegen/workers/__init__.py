"""Worker processes: their manager (`worker`) and their main loop (`serve`)."""
