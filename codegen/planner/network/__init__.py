"""Prices: the load of links, and the cost of collectives and exchanges on a topology."""
