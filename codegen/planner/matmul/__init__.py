"""Matmuls: where devices multiply, what moves before and after, what that takes."""
