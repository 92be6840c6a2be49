"""Check, verify, compile and measure all bundles in a folder on disk."""
