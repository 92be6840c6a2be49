"""Results that are known at emission: equal to one number, or to an operand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from shardwright.codegen.ops.literals import dtype_name
from shardwright.codegen.ops.table import POINTWISE, VIEWS, kind_of
from shardwright.codegen.ops.text import OpText

Number = bool | int | float

EXACT = ("bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f32", "f64")


def known_number(text: OpText, values: Sequence[object]) -> Number | None:
    """Return the number that fills a result, None if it is unknown. `values`: for each operand, the
    number that fills it, or None."""
    kind, dtypes = kind_of(text.op.kind), text.dtypes
    if not (kind.keeps or kind.computed) or not {*dtypes} <= {*EXACT}:
        return None
    if kind.symbol == "/" and dtypes[0][0] != "f":  # integers are rounded towards zero
        return None
    given = [
        np.array(value, dtype_name(dtype).removesuffix("_"))
        for value, dtype in zip(values, dtypes, strict=False)
        if isinstance(value, Number)
    ]
    if len(given) < len(values):
        return None
    with np.errstate(all="ignore"):
        if kind.computed:
            made = kind.computed(*given)
        elif dtypes[-1] == dtypes[0]:
            made = given[0]
        elif dtypes[0][0] == "f" and dtypes[-1][0] in "iu":
            return None  # platforms convert floats out of range to different integers
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
    elif kind_of(kind).neutral is not None:
        place = _neutral(text, values)
    elif (same := kind_of(kind).same) and same(text):
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
    neutral, such as 1 in a product or -inf in a maximum, or None. A sum with 0.0 would turn -0.0
    into 0.0, but XLA drops such a sum too, so the jitted program has the same bits with and without
    it."""
    kind = kind_of(text.op.kind)
    places = (1, 0) if kind.commutes else (1,)
    numbers = [type(value) in (int, float) and value == kind.neutral for value in values]
    return next((1 - place for place in places if numbers[place]), None)


def is_reshape(text: OpText) -> bool:
    test = kind_of(text.op.kind).reshapes
    return test is not None and test(text)


REPEATED = POINTWISE | {"iota", "slice"}
"""Ops whose result is reused when the same op with the same operands occurs again."""
INLINED = VIEWS | {"convert_element_type"}
"""Ops whose expression is inlined into their only use."""
LONGEST_VIEW = 70
"""The most characters of an inlined expression."""
