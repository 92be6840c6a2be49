"""Collectives that the user wrote in a `shard_map`, as expressions."""

from __future__ import annotations

import math
from collections.abc import Callable

from shardwright.codegen.backends.jax_spmd.changes import axes_text
from shardwright.codegen.backends.jax_spmd.expressions import Expression, OpText
from shardwright.codegen.partition.local.collectives import axes_of
from shardwright.ir.errors import InputError


def _axes(text: OpText) -> str:
    """Return the expression for the axes of a collective; axes that the program splits are replaced
    by their parts.

    Raise InputError for a collective among only some of the devices along an axis.
    """
    if text.has("axis_index_groups") is not None:
        raise InputError(
            "a collective in a shard_map must include all devices along its axes",
            argument="fn",
            got=f"axis_index_groups of {text.op.kind}{f', {text.op.line}' if text.op.line else ''}",
            expected="no axis_index_groups; a mesh can have such groups as an axis",
        )
    return axes_text(text.axes.spelled(axes_of(text.op)))


def _alike(function: str) -> Callable[[OpText], Expression]:
    return lambda text: (function, [text.given[0], _axes(text)])


def _permute(text: OpText) -> Expression:
    pairs = text.op.param("perm")
    listed = [pair for pair in pairs if isinstance(pair, tuple)] if isinstance(pairs, tuple) else []
    count = math.prod(text.axes.mesh.sizes[name] for name in axes_of(text.op))
    steps = {(int(str(to)) - int(str(at))) % count for at, to in listed}
    if len(listed) == count and len(steps) == 1:
        (step,) = steps
        said = f"[(i, (i + {step}) % {count}) for i in range({count})]"
    else:
        said = f"[{', '.join(map(str, listed))}]"
    return "lax.ppermute", [text.given[0], _axes(text), said]


def _gather(text: OpText) -> Expression:
    ends = [f"axis={text.has('all_gather_dimension')}", f"tiled={text.has('tiled')}"]
    return "lax.all_gather", [text.given[0], _axes(text), *ends]


def _scatter(text: OpText) -> Expression:
    ends = [f"scatter_dimension={text.has('scatter_dimension')}", f"tiled={text.has('tiled')}"]
    return "lax.psum_scatter", [text.given[0], _axes(text), *ends]


def _exchange(text: OpText) -> Expression:
    ends = [f"split_axis={text.has('split_axis')}", f"concat_axis={text.has('concat_axis')}"]
    return "lax.all_to_all", [text.given[0], _axes(text), *ends, "tiled=True"]


def _ragged(text: OpText) -> Expression:
    return "lax.ragged_all_to_all", [*text.given, f"axis_name={_axes(text)}"]


OWN: dict[str, Callable[[OpText], Expression]] = {
    "axis_index": lambda text: ("lax.axis_index", [_axes(text)]),
    "psum": _alike("lax.psum"),
    "psum_invariant": _alike("lax.psum"),
    "pmax": _alike("lax.pmax"),
    "pmin": _alike("lax.pmin"),
    "ppermute": _permute,
    "all_gather": _gather,
    "all_gather_invariant": _gather,
    "reduce_scatter": _scatter,
    "all_to_all": _exchange,
    "ragged_all_to_all": _ragged,
}
