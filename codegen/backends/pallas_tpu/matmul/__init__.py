"""Modules of matmuls whose parts travel while devices multiply, in Pallas kernels for TPUs."""
