"""Layout changes as calls of `jnp` and `lax`."""

from __future__ import annotations

from collections.abc import Sequence

from shardwright.codegen.moves.move import LayoutMove
from shardwright.codegen.ops.collective_text import collective_call, gather_call
from shardwright.codegen.ops.layout import LocalLayout
from shardwright.codegen.ops.literals import listed
from shardwright.codegen.text.python_text import INDENT, WIDTH, formatted
from shardwright.ir.axes import axes_text
from shardwright.ir.errors import InternalError


def change_call(
    change: LayoutMove,
    source: LocalLayout,
    given: str,
    extents: Sequence[int],
    pairs: str,
    checked: bool,
) -> tuple[str, list[str]]:
    """Return the function that performs a layout change, and its arguments.

    `extents`: the shape of the result; `pairs`: the name of the constant with the (sender,
    receiver) pairs; `checked`: whether the call is under `check_vma`.
    """
    axes = axes_text(change.axes)
    match change.op:
        case "slice":
            (dim,) = change.dims
            size = extents[dim]
            start = f"lax.axis_index({axes})" + (f" * {size}" if size != 1 else "")
            return "lax.dynamic_slice_in_dim", [given, start, str(size), f"axis={dim}"]
        case "replicated_to_unreduced":
            return "jnp.where", [f"lax.axis_index({axes}) == 0", given, "0"]
        case "all_gather":
            return gather_call(given, change.axes, change.dims[0], checked)
        case "all_to_all":
            gathered, split = change.dims
            return collective_call("all_to_all", given, axes, split, gathered)
        case "all_reduce":
            return collective_call(f"p{source.operator}", given, axes)
        case "reduce_scatter":
            return collective_call("psum_scatter", given, axes, *change.dims)
        case "permute":
            return "lax.ppermute", [given, axes, pairs]
    raise InternalError(f"no collective for {change.op}")


def sums_lines(
    names: Sequence[str], given: Sequence[str], types: Sequence[str], axes: str, indent: int
) -> list[str]:
    """Return the statement that reduces several values together, `a, b = lax.psum((x, y), "d")`,
    with the types of its results in comments."""
    room = WIDTH - indent * len(INDENT)
    call = f"lax.psum({listed(given)}, {axes})"
    line = f"{', '.join(names)} = {call}  # {', '.join(types)}"
    if len(line) <= room:
        return [line]
    call = formatted(call, WIDTH - room + len(") = "), WIDTH - room)
    lines = [f"{INDENT}{name},  # {type_}" for name, type_ in zip(names, types, strict=True)]
    lines = [line if len(line) <= room else line.partition("  #")[0] for line in lines]
    return ["(", *lines, *f") = {call}".split("\n")]
