"""Triton modules of matmuls: GPUs multiply while operands arrive and partial sums are in flight."""
