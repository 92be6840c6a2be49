"""Worker processes: what starts, asks and replaces them (`worker`), what answers (`serve`)."""
