"""Prices on a topology: the load of links, and the cost of collectives and exchanges."""
