"""The reshard `steps_2x4`. README.md says what it moves, plan.json lists every transfer.

`reshard` is in the module of each backend: jax_xla.

The derivative finds the reverse reshard in jax_xla_backward.py.
"""
