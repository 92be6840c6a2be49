"""Matmul modules for TPUs: a Pallas kernel sends parts around rings while it multiplies."""
