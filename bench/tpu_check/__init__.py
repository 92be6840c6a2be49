"""Check emitted JAX modules on the TPUs of this machine: their values, and their seconds next to
XLA's own reshard.

`make tpu-check`, or `python -m bench.tpu_check` in the root of a checkout. Bundles of `generated/`
that need more chips than the machine has are left out, and the table lists them. The parts run one
after another, each in one process with a time limit, because a process occupies the chips. After
each part, `tpu_check.json` and `tpu_check.md` are written to $OUT or `build/tpu_check`. Variables:

    TPU_CHECK_DRY=1      the same on CPU devices, kernels in TPU interpret mode, with small tensors
    TPU_CHECK_DEVICES    the number of CPU devices for a dry run, 8 by default
    TPU_CHECK_PARTS      the parts to run, such as `values`
    TPU_CHECK_NAMES      the beginnings of names of cases to run, such as `transpose,gather`

`python -m bench.tpu_check --table FILE.json` prints the table of earlier results.
"""
