"""Run and check an emitted Triton module in Triton's interpreter. Used in workers only."""
