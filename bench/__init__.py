"""Measurements, each next to its peers in the same run. No test asserts a time."""
