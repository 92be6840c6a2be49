"""Modules of matmuls in plain JAX."""
