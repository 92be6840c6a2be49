"""Run worker processes: manage them (`worker`), and run their main loop (`serve`)."""
