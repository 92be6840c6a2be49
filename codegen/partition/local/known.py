"""Names of values in the user's terms: a value is named after the argument that it reshapes, or
after the only result that depends on it."""

from __future__ import annotations

from collections.abc import Iterator

from shardwright.codegen.ops.table import VIEWS
from shardwright.ir.program import Op, Program, Value, ops_of

SAME = VIEWS | {"convert_element_type", "constrain"}
"""Ops that only change the shape or dtype of their operand."""


def known_as(program: Program) -> dict[int, str]:
    """Return a name for each value, such as `w_transpose (of p_w1)` or, for one that the
    user did not name, `d_h_mul (for grads['w1'])`, or else the value's own name."""
    arguments, sources = {*program.body.arguments}, _sources(program)
    results = _results(program) if len(program.results) > 1 else {}
    names = {}
    for number, value in enumerate(program.values):
        more = ""
        if number in sources:
            more = f" (of {program.values[sources[number]].name})"
        elif number not in arguments and not value.is_named and results.get(number, -1) >= 0:
            more = f" (for {_returned(program, results[number])})"
        names[number] = f"{value.version_of or plain_name(value)}{more}"
    return names


def plain_name(value: Value) -> str:
    """Return a value's name. A gradient that is computed again, such as `d_b_again`, has the name
    of the equal value."""
    if not value.gradient_of:
        return value.name
    head = f"d_{value.gradient_of[0]}"
    tail = value.name.removeprefix(head).partition("_again")[0]
    return f"{head}{tail}" if value.name.startswith(head) else value.name


def _returned(program: Program, place: int) -> str:
    """Return the path of a result in the variable that the user returns, or in the results."""
    return (program.held[place] if program.held else "") or program.result_names[place]


def _sources(program: Program) -> dict[int, int]:
    """Return the argument from which each reshaped or cast value comes."""
    found: dict[int, int] = {}
    arguments = {*program.body.arguments}
    for op in ops_of(program.body):
        if op.kind in SAME:
            source = found.get(op.operands[0], op.operands[0])
            if source in arguments:
                found[op.results[0]] = source
    return found


def _results(program: Program) -> dict[int, int]:
    """Return the index of the only result that depends on each value, -1 if several do."""
    found: dict[int, int] = {}
    for place, value in enumerate(program.body.results):
        found[value] = -1 if value in found else place
    for op in reversed(program.body.ops):
        places = {found[value] for value in op.results if value in found}
        for value in _taken(op) if places else ():
            known = {*places, found.get(value, max(places))}
            found[value] = known.pop() if len(known) == 1 else -1
    return found


def _taken(op: Op) -> Iterator[int]:
    yield from op.operands
    for body in op.bodies:
        for inner in ops_of(body):
            yield from inner.results
