"""Results that are known at emission: equal to one number, or to an operand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwright.codegen.ops.literals import dtype_name
from shardwright.codegen.ops.table import ELEMENTWISE
from shardwright.codegen.ops.text import OpText

Number = bool | int | float

COMPUTED: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "add_any": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "square": np.square,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "neg": np.negative,
    "sqrt": np.sqrt,
    "max": np.maximum,
    "min": np.minimum,
    "select_n": lambda which, *cases: cases[int(which)],
}
"""Ops computed at emission: their results on constants are the same on every platform."""
KEPT = frozenset(
    {
        *("broadcast_in_dim", "convert_element_type", "copy", "reshape", "slice", "squeeze"),
        *("stop_gradient", "transpose"),
    }
)
"""Ops whose result is filled with a number if their operand is."""
EXACT = ("bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f32", "f64")


NEUTRAL = {
    "add": 0,
    "add_any": 0,
    "sub": 0,
    "mul": 1,
    "div": 1,
    "max": -math.inf,
    "min": math.inf,
}
"""The operands that change nothing. A sum with 0.0 would turn -0.0 into 0.0, but XLA drops such a
sum too, so the jitted program has the same bits with and without it."""


def known_number(text: OpText, values: Sequence[object]) -> Number | None:
    """Return the number that fills a result, or None if it is unknown. `values`: for each operand,
    the number that fills it, or None."""
    kind, dtypes = text.op.kind, text.dtypes
    if (kind not in KEPT and kind not in COMPUTED) or not {*dtypes} <= {*EXACT}:
        return None
    if kind == "div" and dtypes[0][0] != "f":  # integer division rounds towards zero
        return None
    given = [
        np.array(value, dtype_name(dtype).removesuffix("_"))
        for value, dtype in zip(values, dtypes, strict=False)
        if isinstance(value, Number)
    ]
    if len(given) < len(values):
        return None
    with np.errstate(all="ignore"):
        if kind in COMPUTED:
            made = COMPUTED[kind](*given)
        elif dtypes[-1] == dtypes[0]:
            made = given[0]
        elif dtypes[0][0] == "f" and dtypes[-1][0] in "iu":  # platforms differ out of range
            return None
        else:
            made = given[0].astype(dtype_name(dtypes[-1]).removesuffix("_"))
    found: Number = made.item()
    return found


def added_number(text: OpText, values: Sequence[object]) -> Number | None:
    """Return the number that fills the result of a scatter-add whose update covers its operand at
    index 0, or None if it is unknown. `values`: the numbers that fill the operands, or None."""
    base, index, update = values
    covers = math.prod(text.shapes[0]) == math.prod(text.shapes[2]) and len(text.shapes[1]) == 1
    if index != 0 or base != 0 or not covers or not isinstance(update, Number):
        return None
    return update


def same_operand(text: OpText, values: Sequence[object]) -> int | None:
    """Return the index of the operand that an op returns unchanged, or None. `values`: for each
    operand, the number that fills it, or None."""
    kind = text.op.kind
    place: int | None
    if kind == "select_n" and isinstance(values[0], Number):
        place = 1 + int(values[0])
    elif kind == "select_n" and values[1] is False and values[2] is True:
        place = 0
    elif kind in NEUTRAL:
        place = _neutral(text, values)
    elif kind in SAME and SAME[kind](text):
        place = 0
    else:
        return None
    is_alike = place is not None and (text.shapes[place], text.dtypes[place]) == (
        text.shape,
        text.dtype,
    )
    return place if is_alike and text.layouts[place or 0] == text.layout else None


def _neutral(text: OpText, values: Sequence[object]) -> int | None:
    """Return the index of the operand that an op leaves unchanged because the other operand is
    neutral, such as 1 in a product or -inf in a maximum, or None."""
    kind = text.op.kind
    places = (1,) if kind in ("div", "sub") else (1, 0)
    numbers = [type(value) in (int, float) and value == NEUTRAL[kind] for value in values]
    return next((1 - place for place in places if numbers[place]), None)


def is_reshape(text: OpText) -> bool:
    """Return whether an op only reshapes its operand."""
    match text.op.kind:
        case "reshape" | "squeeze":
            return True
        case "broadcast_in_dim":
            return math.prod(text.shapes[0]) == math.prod(text.shape)
        case "reduce_sum" | "reduce_max" | "reduce_min" | "reduce_prod":
            return all(text.shapes[0][axis] == 1 for axis in text.op.integers("axes"))
    return False


def _is_expanded(text: OpText) -> bool:
    return text.shapes[0] == text.shape


SAME: dict[str, Callable[[OpText], bool]] = {
    "convert_element_type": lambda text: text.dtypes[0] == text.dtype,
    "integer_pow": lambda text: text.op.param("y") == 1,
    "copy": lambda text: True,
    "broadcast_in_dim": _is_expanded,
    "reshape": _is_expanded,
    "squeeze": _is_expanded,
    "transpose": lambda text: text.op.param("permutation") == tuple(range(len(text.shape))),
}
"""Ops that return their operand unchanged if the condition holds."""

REPEATED = ELEMENTWISE | {"broadcast_in_dim", "iota", "reshape", "slice", "squeeze", "transpose"}
"""Ops whose result is reused when the same op occurs again with the same operands."""
COMMUTATIVE = ("add", "add_any", "mul", "max", "min", "and", "or", "xor", "eq", "ne")

VIEWS = ("broadcast_in_dim", "reshape", "squeeze", "transpose", "convert_element_type")
"""Ops whose expression is inlined if it is used only once."""
LONGEST_VIEW = 70
"""The most characters of an inlined expression."""
