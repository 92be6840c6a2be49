"""Prices: the load of links, and what collectives and exchanges cost on a topology."""
