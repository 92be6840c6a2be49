"""Matmul modules whose parts travel during the product, in Pallas kernels for TPUs."""
