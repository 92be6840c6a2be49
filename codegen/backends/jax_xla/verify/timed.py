"""Time plain JAX modules on the available devices. Imported only by workers."""

from shardwright.codegen.checks.jax_timed import hardware, timed

__all__ = ["hardware", "timed"]
