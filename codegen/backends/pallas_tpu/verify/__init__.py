"""Run and check an emitted Pallas module, without a TPU. In a worker only."""
