"""Compile an emitted Triton module for a GPU, without one. In a worker only."""
