"""Matmuls: where devices multiply, the moves before and after, and their cost."""
