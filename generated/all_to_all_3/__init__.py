"""The reshard `all_to_all_3`. README.md says what it moves, plan.json lists every transfer.

`reshard` is in the module of each backend: pallas_tpu, triton_gpu.
"""
