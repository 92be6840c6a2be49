"""Layouts learned from loaders, and comparisons of both."""
