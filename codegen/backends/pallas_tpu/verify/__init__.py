"""Run and check emitted Pallas modules on machines without a TPU. Imported only by workers."""
