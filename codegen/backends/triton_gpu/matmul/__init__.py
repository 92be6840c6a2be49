"""Triton modules of matmuls: operands come and sums leave while GPUs multiply."""
