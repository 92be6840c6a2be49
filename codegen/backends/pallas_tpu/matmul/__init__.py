"""Matmul modules for TPUs: a Pallas kernel sends parts round rings while it multiplies."""
