"""What a bundle may be of: one file for each kind of operation, and one for groups."""
