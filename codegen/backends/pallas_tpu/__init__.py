"""The Pallas TPU backend: one SPMD kernel in which every device pushes its tiles to the
receivers."""
