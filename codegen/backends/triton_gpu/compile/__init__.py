"""Compile an emitted Triton module for a GPU, without one. Used in workers only."""
