"""Worker processes: how they are managed (`worker`), and their main loop (`serve`)."""
