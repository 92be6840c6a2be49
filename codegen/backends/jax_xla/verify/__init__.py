"""Run and check an emitted XLA module on forced CPU devices. Used in workers only."""
