"""What is written: Jinja templates, readable as the kernels they become. Imports nothing."""
