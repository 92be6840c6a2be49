"""Run and check an emitted Triton module in Triton's interpreter. In a worker only."""
