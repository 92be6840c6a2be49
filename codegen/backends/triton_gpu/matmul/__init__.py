"""Triton modules of matmuls: operands arrive and sums leave while GPUs multiply."""
