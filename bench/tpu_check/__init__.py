"""Emitted JAX modules on the TPUs of this machine: values, and seconds next to XLA's own reshard.

`make tpu-check`, or `python -m bench.tpu_check` in the root of a checkout. Bundles of `generated/`
that need more chips than the machine has are left out, and the table says so. The parts run one
after another, each in one process with a time limit, since a process has the chips for itself.
After each part, `tpu_check.json` and `tpu_check.md` are written to $OUT or `build/tpu_check`.
Variables:

    TPU_CHECK_DRY=1      the same on CPU devices, kernels in TPU interpret mode, with small tensors
    TPU_CHECK_DEVICES    how many CPU devices that takes, 8 by default
    TPU_CHECK_PARTS      some parts, as `values`
    TPU_CHECK_NAMES      only cases whose names begin so, as `transpose,gather`

`python -m bench.tpu_check --table FILE.json` prints the table of earlier results.
"""
