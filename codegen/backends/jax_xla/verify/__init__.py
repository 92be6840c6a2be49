"""Run and check an emitted XLA module on forced CPU devices. In a worker only."""
