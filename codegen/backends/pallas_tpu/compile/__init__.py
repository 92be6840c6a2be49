"""Compile an emitted JAX module for a TPU, without one. Used in workers only."""
