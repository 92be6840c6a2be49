"""Check that XLA has enough threads to interpret kernels."""

import math
import os

import jax

# XLA on CPU copies arrays of more bytes in a separate thread (kSmallDataTransferByteSize).
COPIED_AT_ONCE = 102400


def refuse_to_hang(held):
    """Raise ValueError if the interpreter would deadlock: each device occupies one of XLA's
    threads, and none remains to copy a large array. `held`: the arrays that one device holds."""
    devices, threads = jax.sharding.get_abstract_mesh().size, xla_threads()
    leaves = jax.tree.leaves(held)
    sized = (each for each in leaves if hasattr(getattr(each, "dtype", None), "itemsize"))
    largest = max(math.prod(each.shape) * each.dtype.itemsize for each in sized)
    if devices < threads or largest <= COPIED_AT_ONCE:
        return
    raise ValueError(
        f"interpret: got {threads} XLA threads for {devices} devices, but on arrays over 100 KiB "
        f"(here {largest} bytes) the interpreter hangs without a spare thread; set XLA_FLAGS="
        f"--xla_force_host_platform_device_count={devices + 1} before jax is imported"
    )


def xla_threads():
    """Return the number of XLA threads on this CPU: the number of JAX devices or, if larger,
    PJRT_NPROC, else NPROC, else the number of cores (DefaultThreadPoolSize in XLA)."""
    said = (os.environ.get(name, "") for name in ("PJRT_NPROC", "NPROC"))
    cores = next((int(each) for each in said if each.isdecimal()), None)
    if cores is None:
        has_affinity = hasattr(os, "sched_getaffinity")
        cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return max(cores, jax.local_device_count("cpu"))
