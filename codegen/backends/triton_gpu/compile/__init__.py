"""Compile emitted Triton modules for GPUs on a machine that has none. Imported only by workers."""
