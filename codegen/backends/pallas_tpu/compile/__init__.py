"""Compile an emitted JAX module for a TPU, without one. In a worker only."""
