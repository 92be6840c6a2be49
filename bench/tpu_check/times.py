"""The part `times`: the seconds of our reshards, and of XLA's own with `jit` and with
`device_put`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from bench.parts.attempt import Job, Row
from bench.tpu_check.cases import Bundle, bundles
from bench.tpu_check.home import DRY, jax
from bench.tpu_check.reshards import Moved
from shardwright.codegen.checks.workers.clock import timed

REPEATS = 2 if DRY else 20


def seconds(run: Callable[[], Any]) -> float:
    """Return the median seconds of a run until its result is ready."""
    (found,) = timed([lambda: jax.block_until_ready(run())], least=REPEATS, most=REPEATS, limit=0.0)
    return statistics.median(found)


def measured(bundle: Bundle) -> Row:
    """Return the seconds of our reshard and, if JAX can express both shardings without padding, of
    XLA's own."""
    moved = Moved(bundle)
    x, _ = moved.example(0)
    ours = seconds(lambda: moved.call(x))
    row: Row = {"devices": len(moved.ids), "ours_us": round(ours * 1e6, 1)}
    wire = getattr(moved.module, "WIRE_BYTES", 0)
    if wire:
        row["wire_GBs"] = round(1e-9 * wire / ours, 2)
    return row | _theirs(moved, x, ours)


def _theirs(moved: Moved, x: Any, ours: float) -> Row:
    case, module = moved.case, moved.module
    padded = module.PADDED_SOURCE_SHAPE, module.PADDED_TARGET_SHAPE
    if padded != (tuple(case.source_shape), tuple(case.target_shape)) or case.target.unreduced:
        return {}
    row: Row = {}
    if not case.source.unreduced:
        put = seconds(lambda: jax.device_put(x, moved.sharding))
        row |= {"put_us": round(put * 1e6, 1), "of_put": round(put / ours, 2)}
    if list(case.source.device_ids) == list(case.target.device_ids):
        program = jax.jit(partial(_value, moved), out_shardings=moved.sharding)
        jitted = seconds(lambda: program(x))
        row |= {"jit_us": round(jitted * 1e6, 1), "of_jit": round(jitted / ours, 2)}
    return row


def _value(moved: Moved, x: Any) -> Any:
    """Return the tensor that an array represents, with the terms of a partial sum combined."""
    if not moved.case.source.unreduced:
        return x
    numpy = jax.numpy
    combine = {"sum": numpy.sum, "max": numpy.max, "min": numpy.min}[moved.case.source.operator]
    return combine(x, axis=0).astype(x.dtype)


def jobs() -> Iterator[Job]:
    for bundle in bundles("shape"):
        yield bundle.case_name, partial(measured, bundle)
