"""Matmuls: how devices split the product, the moves before and after it, and their cost."""
