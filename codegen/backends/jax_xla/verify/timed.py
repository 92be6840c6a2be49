"""Timing of plain JAX modules on the available devices. Used in workers only."""

from shardwright.codegen.checks.jax_timed import hardware, timed

__all__ = ["hardware", "timed"]
