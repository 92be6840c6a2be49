"""Run and check an emitted Pallas module, without a TPU. Used in workers only."""
