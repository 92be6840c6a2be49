"""Lines of kernels, as a formatter leaves them."""

from __future__ import annotations

import sympy

from shardwright.codegen.backends.lines import FITS, conjunction
from shardwright.codegen.backends.triton_gpu.along import Condition
from shardwright.ir.algebra.identities import simplify
from shardwright.ir.algebra.index import Value
from shardwright.ir.algebra.printers import TRITON

LOOPED = FITS - 4
"""Characters of a line of the loop that is a kernel's body."""

Terms = list[tuple[Value, Value]]
"""Summands of an offset: where something begins, and how far apart that is counted in."""


def chosen(name: str, test: str, one: str, other: str) -> list[str]:
    """Return the lines of a choice."""
    inner = f"{test}, {one}, {other}"
    line = f"{name} = tl.where({inner})"
    if len(line) <= LOOPED:
        return [line]
    apart = [inner] if len(inner) <= LOOPED - 4 else [f"{test},", f"{one},", f"{other},"]
    return [f"{name} = tl.where(", *(f"    {each}" for each in apart), ")"]


def test_of(conditions: list[Condition]) -> list[str]:
    """Return the lines that begin a block of what is done unless a tile is empty."""
    tests = [f"{TRITON.text(small)} < {TRITON.text(large)}" for small, large in conditions]
    return conjunction("if ", tests, "&", ":")


def sum_argument(name: str, terms: Terms, room: int) -> list[str]:
    """Return `name=begin * stride + ...,` of what is not zero, an argument of a call; `room`:
    characters of a line."""
    parts = []
    for begin, stride in terms:
        value, step = simplify(begin), simplify(stride)
        text = TRITON.text(value)
        if value == 0:
            continue
        if step != 1:
            text = f"({text})" if isinstance(value, sympy.Add) else text
            step_text = TRITON.text(step)
            text += f" * ({step_text})" if step.args else f" * {step_text}"
        parts.append(text)
    line = f"{name}={' + '.join(parts) or '0'},"
    if len(line) <= room:
        return [line]
    return [f"{name}=(", f"    {parts[0]}", *(f"    + {part}" for part in parts[1:]), "),"]
