"""Measurements, each taken in the same run as those of its peers. No test asserts a time."""
