"""Matmuls, convolutions, gathers and scatters: `@` and `einsum` if possible, otherwise `lax`."""

from __future__ import annotations

from collections.abc import Callable

from shardwright.codegen.ops.kinds import SCATTERS
from shardwright.codegen.ops.literals import dtype_text, integers, number
from shardwright.codegen.ops.text import Expression, OpText

PRECISIONS = ("DEFAULT", "HIGH", "HIGHEST")
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def dot(text: OpText) -> Expression:
    """Return a matmul: `lax.dot_general` for operands of different dtypes, otherwise `x @ w` if
    possible, or an einsum."""
    given = list(text.given)
    ends = _precision(text)
    if text.dtypes[0] != text.dtypes[1]:
        return "lax.dot_general", [*given, _numbers(text), *ends, *_preferred(text, always=True)]
    ends += _preferred(text)
    if _is_matmul(text) and not ends:
        return f"{given[0]} @ {given[1]}"
    return "jnp.einsum", [f'"{_subscripts(text)}"', *given, *ends]


def _ragged_dot(text: OpText) -> Expression:
    ends = [*_precision(text), *_preferred(text)]
    sides = ("contract_lhs", "contract_rhs", "batch_lhs", "batch_rhs", "ragged_lhs", "group_rhs")
    given = [*text.given[:3], *(f"group_offset={each}" for each in text.given[3:])]
    if [text.op.integers(name) for name in sides] == [(1,), (1,), (), (), (0,), (0,)]:
        return "lax.ragged_dot", [*given, *ends]
    numbers = (
        f"dot_dimension_numbers={_numbers(text)}",
        f"lhs_ragged_dimensions={integers(text.op.integers('ragged_lhs'))}",
        f"rhs_group_dimensions={integers(text.op.integers('group_rhs'))}",
    )
    ragged = f"lax.RaggedDotDimensionNumbers({', '.join(numbers)})"
    return "lax.ragged_dot_general", [*given[:3], ragged, *ends, *given[3:]]


def _scaled_dot(text: OpText) -> Expression:
    lhs, rhs, *scales = text.given
    scaled = [f"{side}_scale={x}" for side, x in zip(("lhs", "rhs"), scales, strict=True)]
    numbers = f"dimension_numbers={_numbers(text)}"
    return "lax.scaled_dot", [lhs, rhs, *scaled, numbers, *_preferred(text, always=True)]


def _is_matmul(text: OpText) -> bool:
    sides = ("contract_lhs", "contract_rhs", "batch_lhs", "batch_rhs")
    lhs, rhs, *batch = (text.op.integers(name) for name in sides)
    ranks = [len(shape) for shape in text.shapes[:2]]
    return (
        ranks[1] == 2 and ranks[0] > 1 and not any(batch) and (lhs, rhs) == ((ranks[0] - 1,), (0,))
    )


def _precision(text: OpText) -> list[str]:
    given = text.has("precision")
    if isinstance(given, tuple) and given and given[0] == given[-1]:
        given = given[0]
    if given in (None, "DEFAULT", ()):
        return []
    if isinstance(given, tuple):
        return [f"precision=({', '.join(map(_quoted, given))})"]
    return [f"precision={_quoted(given)}"]


def _quoted(precision: object) -> str:
    name = str(precision)
    return f'"{name.lower() if name in PRECISIONS else name}"'


def _preferred(text: OpText, always: bool = False) -> list[str]:
    if text.dtype == text.dtypes[0] and not always:
        return []
    return [f"preferred_element_type={dtype_text(text.dtype)}"]


def _numbers(text: OpText) -> str:
    op = text.op
    sides = (("contract_lhs", "contract_rhs"), ("batch_lhs", "batch_rhs"))
    pairs = tuple(tuple(op.integers(name) for name in pair) for pair in sides)
    return integers(pairs)


def _subscripts(text: OpText) -> str:
    """Return the subscripts of an einsum whose result has the batch dimensions first, then the
    remaining dimensions of each side."""
    op = text.op
    free = iter(LETTERS)
    ranks = [len(shape) for shape in text.shapes[:2]]
    sides: list[dict[int, str]] = [{}, {}]
    for name in ("batch", "contract"):
        pair = (op.integers(f"{name}_lhs"), op.integers(f"{name}_rhs"))
        for left, right in zip(*pair, strict=True):
            sides[0][left] = sides[1][right] = next(free)
    kept = [sides[0][dim] for dim in op.integers("batch_lhs")]
    for side, rank in zip(sides, ranks, strict=True):
        for dim in range(rank):
            if dim not in side:
                side[dim] = next(free)
                kept.append(side[dim])
    lhs, rhs = ("".join(side[dim] for dim in sorted(side)) for side in sides)
    return f"{lhs},{rhs}->{''.join(kept)}"


def convolution(text: OpText) -> Expression:
    """Return a convolution with all its parameters."""
    op = text.op
    specs = ", ".join(integers(op.integers(f"{side}_spec")) for side in ("lhs", "rhs", "out"))
    names = ("window_strides", "padding", "lhs_dilation", "rhs_dilation")
    ends = [f"{name}={integers(op.param(name))}" for name in names]
    ends.append(f"dimension_numbers=lax.ConvDimensionNumbers({specs})")
    groups = ("feature_group_count", "batch_group_count")
    ends += [f"{name}={op.param(name)}" for name in groups if op.param(name) != 1]
    return "lax.conv_general_dilated", [*text.given, *ends, *_precision(text), *_preferred(text)]


GATHER = ("offset_dims", "collapsed_slice_dims", "start_index_map", "operand_batching_dims")
SCATTER = ("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims")


def _mode(text: OpText) -> list[str]:
    given = str(text.has("mode"))
    names = {"CLIP": "clip", "FILL_OR_DROP": "fill", "PROMISE_IN_BOUNDS": "promise_in_bounds"}
    return [f'mode="{names[given]}"'] if given in names else []


def _sliced(text: OpText) -> tuple[int, ...]:
    offsets = text.op.integers("offset_dims")
    gone = {
        *text.op.integers("collapsed_slice_dims"),
        *text.op.integers("operand_batching_dims"),
    }
    window = [dim for dim in range(len(text.shapes[0])) if dim not in gone]
    sizes = list(text.op.integers("slice_sizes"))
    for dim, to in zip(window, offsets, strict=True):
        sizes[dim] = text.shape[to]
    return tuple(sizes)


def gather(text: OpText) -> Expression:
    """Return a gather with its dimension numbers."""
    names = (*GATHER, "start_indices_batching_dims")
    numbers = ", ".join(f"{name}={integers(text.op.integers(name))}" for name in names)
    fill = text.has("fill_value")
    ends = [f"lax.GatherDimensionNumbers({numbers})", integers(_sliced(text)), *_mode(text)]
    ends += [] if fill is None else [f"fill_value={number(fill)}"]
    return "lax.gather", [*text.given, *ends]


def _scatter(function: str) -> Callable[[OpText], Expression]:
    def scatter(text: OpText) -> Expression:
        names = (*SCATTER, "operand_batching_dims", "scatter_indices_batching_dims")
        numbers = ", ".join(f"{name}={integers(text.op.integers(name))}" for name in names)
        unique = ["unique_indices=True"] if text.has("unique_indices") else []
        ends = [f"lax.ScatterDimensionNumbers({numbers})", *unique, *_mode(text)]
        return function, [*text.given, *ends]

    return scatter


CONTRACTIONS: dict[str, Callable[[OpText], Expression]] = {
    "dot_general": dot,
    "ragged_dot_general": _ragged_dot,
    "scaled_dot": _scaled_dot,
    "conv_general_dilated": convolution,
    "gather": gather,
    **{kind: _scatter(f"lax.{kind.replace('-', '_')}") for kind in SCATTERS},
}
