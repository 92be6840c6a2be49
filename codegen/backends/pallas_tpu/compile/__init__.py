"""Compile emitted JAX modules for TPUs on a machine that has none. Imported only by workers."""
