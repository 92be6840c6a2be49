"""Run and check an emitted XLA module on forced CPU devices. Imported only by workers."""
