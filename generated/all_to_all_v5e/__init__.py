"""The reshard `all_to_all_v5e`. README.md says what it moves, plan.json lists every transfer.

`reshard` is in the module of each backend: pallas_tpu, triton_gpu.

The derivative finds the reverse reshard in pallas_tpu_backward.py, triton_gpu_backward.py.
"""
