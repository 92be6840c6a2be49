"""What an emitted program computes and receives, beside the function on one device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardwright.codegen.planner.xla import received as received_by_all

ROUNDING, SLACK = 2e-5, 8
"""A float may be off by as much of the largest one, and as often as far as one device is."""


def arguments(avals: Any, seed: int = 0) -> Any:
    """Return arrays for avals: floats of about one, small integers."""
    rng = np.random.default_rng(seed)

    def made(aval: Any) -> Any:
        if np.issubdtype(aval.dtype, np.integer):
            return jnp.asarray(rng.integers(0, 4, aval.shape), aval.dtype)
        return jnp.asarray(rng.standard_normal(aval.shape) * 0.5, aval.dtype)

    return jax.tree.map(made, avals)


def in_float64(fn: Callable[..., Any], given: Any) -> Any:
    """Return what a function gives on one device, its floats as wide as they get."""
    with jax.enable_x64(True):
        wide = jax.tree.map(
            lambda x: np.asarray(x, np.float64 if x.dtype.kind == "f" else np.int64), given
        )
        return jax.tree.map(np.asarray, fn(*wide))


def fault(fn: Callable[..., Any], avals: Any, program: Callable[..., Any]) -> str:
    """Return what is wrong with what a program computes; the empty string if nothing is."""
    given = arguments(avals)
    one, exact = jax.tree.map(np.asarray, fn(*given)), in_float64(fn, given)
    try:
        ours = jax.tree.map(np.asarray, program(*given))
    except Exception as error:  # whatever the module raises
        return f"{type(error).__name__}: {error}"[:500]
    if jax.tree.structure(one) != jax.tree.structure(ours):
        return "another tree of results"
    leaves = zip(*map(jax.tree.leaves, (one, exact, ours)), strict=True)
    for number, each in enumerate(leaves):
        said = difference(*each)
        if said:
            return f"result {number}: {said}"
    return ""


def difference(one: Any, exact: Any, ours: Any) -> str:
    """Return how a result differs from one device's: integers bitwise, floats by more than one
    device's are off, and by rounding."""
    if one.shape != ours.shape or one.dtype != ours.dtype:
        return f"{ours.dtype}{ours.shape}, not {one.dtype}{one.shape}"
    if not np.issubdtype(one.dtype, np.floating):
        return "" if np.array_equal(one, ours) else "other integers"
    if not np.array_equal(np.isfinite(one), np.isfinite(ours)):
        return "other elements are finite"
    known = np.isfinite(exact) & np.isfinite(one)
    scale = np.max(np.abs(exact[known]), initial=0)
    allowed = SLACK * np.max(np.abs(one[known] - exact[known]), initial=0) + ROUNDING * scale
    off = np.max(np.abs(ours[known] - exact[known]), initial=0)
    return "" if off <= allowed else f"off by {off}, allowed {allowed}"


def received(avals: Any, program: Any, devices: int) -> int:
    """Return the bytes that the busiest device receives by the HLO of a program, for CPUs."""
    compiled = program.lower(*avals).compile()
    totals, _ = received_by_all(compiled.as_text(), devices)
    return max(totals)
