"""What an emitted program computes, beside one device; and faults to plant in it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import shardwright as sw
from shardwright.codegen.planner.xla import received as received_by_all

Plant = Callable[[str], str]


def module_of(program: sw.Partitioned, plant: Plant | None = None) -> dict[str, Any]:
    """The names of the module of a program, with a fault if one is to be planted."""
    text = sw.emit(program).files("emitted")["jax_spmd.py"]
    if plant is not None:
        planted = plant(text)
        assert planted != text
        text = planted
    names: dict[str, Any] = {"__name__": "emitted"}
    exec(compile(text, "emitted", "exec"), names)
    return names


def arguments(avals: Any, seed: int = 0) -> Any:
    """Arrays for avals: floats of about one, small integers."""
    rng = np.random.default_rng(seed)

    def made(aval: Any) -> Any:
        if np.issubdtype(aval.dtype, np.integer):
            return jnp.asarray(rng.integers(0, 4, aval.shape), aval.dtype)
        return jnp.asarray(rng.standard_normal(aval.shape) * 0.5, aval.dtype)

    return jax.tree.map(made, avals)


def in_float64(fn: Any, given: Any) -> Any:
    """What a function gives on one device, its floats as wide as they get."""
    with jax.enable_x64(True):
        wide = jax.tree.map(
            lambda x: np.asarray(x, np.float64 if x.dtype.kind == "f" else np.int64), given
        )
        return jax.tree.map(np.asarray, fn(*wide))


def fault(fn: Any, avals: Any, program: Any, mesh: Any, plant: Plant | None = None) -> str:
    """What is wrong with what the module of a program computes; the empty string if nothing is."""
    given = arguments(avals)
    one, exact = jax.tree.map(np.asarray, fn(*given)), in_float64(fn, given)
    try:
        ours = jax.tree.map(np.asarray, module_of(program, plant)["program"](mesh)(*given))
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:500]
    if jax.tree.structure(one) != jax.tree.structure(ours):
        return "another tree of results"
    for number, leaves in enumerate(zip(*map(jax.tree.leaves, (one, exact, ours)), strict=True)):
        said = difference(*leaves)
        if said:
            return f"result {number}: {said}"
    return ""


def difference(one: Any, exact: Any, ours: Any) -> str:
    """How a result differs from one device's: integers bitwise, floats by as much as float64 says
    that one device is off, and by rounding."""
    if one.shape != ours.shape or one.dtype != ours.dtype:
        return f"{ours.dtype}{ours.shape}, not {one.dtype}{one.shape}"
    if not np.issubdtype(one.dtype, np.floating):
        return "" if np.array_equal(one, ours) else "other integers"
    if not np.array_equal(np.isfinite(exact), np.isfinite(ours)):
        return "" if not np.isfinite(one).all() else "not finite"
    known = np.isfinite(exact)
    scale = np.max(np.abs(exact[known]), initial=0)
    allowed = 8 * np.max(np.abs(one[known] - exact[known]), initial=0) + 2e-5 * scale
    off = np.max(np.abs(ours[known] - exact[known]), initial=0)
    return "" if off <= allowed else f"off by {off}, allowed {allowed}"


def received(avals: Any, program: Any, mesh: Any) -> int:
    """The bytes that the busiest device receives by the HLO of the module, for CPUs."""
    compiled = module_of(program)["program"](mesh).lower(*avals).compile()
    totals, _ = received_by_all(compiled.as_text(), mesh.size)
    return max(totals)


def once(pattern: str, to: str) -> Plant:
    """Replace the first match of a pattern, where jax does not check by itself."""

    def plant(text: str) -> str:
        assert re.search(pattern, text), pattern
        return re.sub(pattern, to, text, count=1).replace("check_vma=True", "check_vma=False")

    return plant


FAULTS: dict[str, Plant] = {
    "a dropped sum": once(r'= lax\.psum\((\w+), "t"\)', r"= \1"),
    "a sum too many": once(r"= (\w+) - y", r'= lax.psum(\1 - y, "t")'),
    "a gather along the wrong axis": once(
        r'lax\.all_gather\(p_w1, "d", (.*?)\)', r'jnp.tile(lax.all_gather(p_w1, "t", \1), (2, 1))'
    ),
    "a gather of the wrong dimension": once(
        r'(all_gather\(p_w1, "d"), axis=0(.*\n.*=) x @ (\w+)',
        r"\1, axis=1\2 x @ \3.reshape(-1, 32)",
    ),
    "a scatter of the wrong dimension": once(
        r"scatter_dimension=1, tiled=True\)", r"scatter_dimension=0, tiled=True).reshape(-1, 8)"
    ),
    "a sum after what is not linear": once(
        r"(\w+_sum) = lax\.psum\((\w+), \"t\"\)(.*\n(?:.*\n)*?.*= )(\w+) \*\* 2",
        r'\1 = \2\3lax.psum(\4 ** 2, "t")',
    ),
}
