"""Work on bundles on disk: check, verify, compile and measure all of a folder."""
