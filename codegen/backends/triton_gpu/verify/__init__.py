"""Run and check emitted Triton modules in Triton's interpreter. Imported only by workers."""
