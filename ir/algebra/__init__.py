"""Exact integer index algebra: expressions, what is proved of them, identities, printers."""
