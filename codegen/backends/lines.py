"""Format the lines of emitted functions."""

from __future__ import annotations

import re

import sympy

from shardwright.codegen.text.index_functions import Assignment
from shardwright.codegen.text.python_text import statement_lines
from shardwright.ir.algebra.index import Value
from shardwright.ir.algebra.printers import TRITON, Printer
from shardwright.ir.errors import InternalError

LONG = 64
"""The largest length, as `length` counts it, of an expression into which other expressions are
inlined."""

FITS = 96
"""The most characters in a line of a function body."""


def length(text: str) -> int:
    """Return the length of an expression in characters, counting every number as four.

    The length decides whether a value gets a name. It must not depend on extents, so that modules
    of tensors that differ only in extents have the same form.
    """
    return len(re.sub(r"\b\d+\b", "0000", text))


def conjunction(tests: list[str], sign: str, room: int) -> str:
    """Join tests as `(a) & (b)` or `a and b`, over several lines if they exceed `room`
    characters."""
    if len(tests) < 2:
        return "".join(tests) or "True"
    each = [f"({test})" for test in tests] if sign == "&" else tests
    if len(line := f" {sign} ".join(each)) <= room:
        return line
    return "\n".join(["(", f"    {each[0]}", *(f"    {sign} {test}" for test in each[1:]), ")"])


def printed(printer: Printer, assignments: list[Assignment], depth: int = 1) -> list[str]:
    """Return assignments as lines of code, indented by `depth` levels."""
    return [line for a in assignments for line in statement_lines(printer, a.name, a.value, depth)]


def pruned(assignments: list[Assignment], texts: list[str]) -> list[Assignment]:
    """Drop unused assignments, and inline those that only one other assignment uses. `texts`: the
    lines that follow the assignments; names that they use are kept."""
    words = set(re.findall(r"\w+", " ".join(texts)))
    kept: list[Assignment] = []
    for assignment in reversed(assignments):
        users = [k for k, later in enumerate(kept) if _uses(later.value, assignment.name)]
        if assignment.name in words or len(users) > 1:
            kept.insert(0, assignment)
        elif users:
            kept = _inlined(assignment, users[0], kept)
    return kept


def _inlined(assignment: Assignment, place: int, others: list[Assignment]) -> list[Assignment]:
    """Return `others` with an assignment inlined into its only user, `others[place]`. If the result
    would be too long, or the printer could not express it, return both unchanged."""
    user = others[place]
    symbol = next(s for s in user.value.free_symbols if s.name == assignment.name)
    whole = Assignment(user.name, user.value.subs(symbol, assignment.value))
    try:
        text = TRITON.text(whole.value)
    except InternalError:
        return [assignment, *others]
    if length(text) > LONG:
        return [assignment, *others]
    return [*others[:place], whole, *others[place + 1 :]]


def _uses(value: Value, name: str) -> bool:
    return any(symbol.name == name for symbol in sympy.sympify(value).free_symbols)
