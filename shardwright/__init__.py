"""From two shardings of one tensor to kernels a person can read."""
