"""Measurements, each side by side with its peers in one run. Nothing here is a timed test."""
