"""The part `values`: reshards are compared bit by bit, matmuls within rounding."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from bench.parts.attempt import Job, LeftOutError, Row
from bench.tpu_check.cases import Bundle, bundles, enough, mesh_of
from bench.tpu_check.home import MOST_FLOPS, jax
from bench.tpu_check.reshards import Moved

CALLS = 3
"""The number of calls of a module, with different values in each."""

WITHIN = 0.05
"""The largest allowed error of an element, relative to the sum of its magnitude and that of a mean
element."""


def check_reshard(bundle: Bundle) -> Row:
    """Move random bits several times. Raises ValueError for a wrong element."""
    moved = Moved(bundle)
    for turn in range(CALLS):
        x, wanted = moved.example(turn)
        moved.poison()
        moved.compare(jax.block_until_ready(moved.call(x)), wanted, f"call {turn}")
    return {"devices": len(moved.ids)}


def check_matmul(bundle: Bundle) -> Row:
    """Multiply, and compare with XLA's product in float32 on one device. Raises ValueError if the
    error exceeds WITHIN."""
    module = importlib.import_module(f"generated.{bundle.name}.{bundle.backend}")
    enough(module.IDS)
    flops = 2 * math.prod(module.LHS_SHAPE) * module.RHS_SHAPE[-1]
    if flops > MOST_FLOPS:
        raise LeftOutError("the matmul is too large to run here")
    mesh = mesh_of(module.MESH_AXES, list(module.IDS), sorted(module.IDS))
    rng, dtype = np.random.default_rng(1), jax.numpy.dtype(module.DTYPE)
    lhs, rhs = (
        rng.standard_normal(shape, np.float32).astype(dtype)
        for shape in (module.LHS_SHAPE, module.RHS_SHAPE)
    )
    a = jax.device_put(module.pad_lhs(lhs), module.lhs_sharding(mesh))
    b = jax.device_put(module.pad_rhs(rhs), module.rhs_sharding(mesh))
    call = jax.jit(
        lambda a, b: module.matmul(a, b, mesh, **bundle.options),
        out_shardings=module.out_sharding(mesh),
    )
    got = np.asarray(module.unpad(call(a, b))).astype(np.float32)
    wide = (jax.numpy.asarray(each).astype(np.float32) for each in (lhs, rhs))
    right = np.asarray(jax.numpy.matmul(*wide, precision="highest"))
    worst = float((np.abs(got - right) / (np.abs(right) + np.abs(right).mean())).max())
    if not worst < WITHIN:  # true for NaN too
        raise ValueError(f"relative error {worst}, expected less than {WITHIN}")
    return {"devices": len(module.IDS), "worst_error": round(worst, 5)}


def jobs() -> Iterator[Job]:
    for bundle in bundles("shape"):
        yield bundle.case_name, partial(check_reshard, bundle)
    for bundle in bundles("lhs"):
        yield bundle.case_name, partial(check_matmul, bundle)
