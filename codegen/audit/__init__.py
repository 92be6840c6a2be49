"""What a compiled program of the user's own moves between devices, and what of that is in vain."""
