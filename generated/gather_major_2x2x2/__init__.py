"""The reshard `gather_major_2x2x2`. README.md says what it moves, plan.json lists every transfer.

`reshard` is in the module of each backend: pallas_tpu, triton_gpu.
"""
