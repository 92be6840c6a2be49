"""Count how often each computation of an HLO module runs in one run of the program.

The body of a loop runs once per iteration. The number of iterations comes from the compiler's
annotation, or else from the condition of the loop. If the condition of a branch compares the
counter of the loop, the branch runs in the iterations that take it; such branches are common,
because the last iteration often moves nothing. Any other branch counts as taken every time.
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass

from shardwright.codegen.spec.hlo.text import HloInstruction, HloModule

_NOTED = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_COMPARED = {
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
    "EQ": operator.eq,
    "NE": operator.ne,
}
_THROUGH = ("copy", "convert", "bitcast", "copy-done", "copy-start", "reshape")


@dataclass(frozen=True)
class Often:
    """A number of runs. If not `exact`, it is a lower bound, because the number of iterations of a
    loop is unknown."""

    times: int
    exact: bool = True


@dataclass(frozen=True)
class Counter:
    """The counter of a loop."""

    index: int  # its index in the tuple that the loop carries
    first: int  # its value in the first iteration
    step: int  # its increment per iteration
    turns: int  # the number of iterations


def executions(module: HloModule) -> dict[str, Often]:
    """Count how often each computation runs, by name, omitting computations that never run."""
    found: dict[str, Often] = {}
    seen: set[str] = set()

    def visit(computation: str, often: Often) -> None:
        before = found.get(computation, Often(0))
        found[computation] = Often(before.times + often.times, before.exact and often.exact)
        if computation in seen:  # computations are not recursive
            return
        seen.add(computation)
        for instruction in module.computations.get(computation, {}).values():
            for kind, name in instruction.called.items():
                # `async-update` and `async-done` repeat the computation of their `async-start`.
                if instruction.op not in ("async-update", "async-done"):
                    visit(name, _within(module, instruction, kind, often))
        seen.discard(computation)

    visit(module.entry, Often(1))
    return found


def _within(module: HloModule, caller: HloInstruction, kind: str, often: Often) -> Often:
    if caller.op == "conditional":
        return _taken(module, caller, kind, often)
    if caller.op != "while" or kind != "body":
        return often
    turns = trip_count(module, caller)
    if turns is None:
        return Often(often.times, False)
    return Often(often.times * turns, often.exact)


def _taken(module: HloModule, caller: HloInstruction, kind: str, often: Often) -> Often:
    """Return the number of runs of a branch. If its condition compares the counter of the loop
    around it, count the iterations that take the branch."""
    around = module.callers.get(caller.computation, [])
    counter = _counter(module, around[0]) if len(around) == 1 else None
    test = _operand(module, caller, 0)
    if counter is None or test is None or test.op != "compare":
        return often
    if not counter.turns or counter.turns != trip_count(module, around[0]):
        return often
    compared = _COMPARED.get(test.text("direction") or "")
    offset = _step(module, _operand(module, test, 0), counter.index, alone=True)
    with_what = _constant(module, _operand(module, test, 1))
    if compared is None or offset is None or with_what is None:
        return often
    values = (counter.first + turn * counter.step + offset for turn in range(counter.turns))
    count = sum(compared(value, with_what) is (kind == "true_computation") for value in values)
    return Often(often.times // counter.turns * count, often.exact)


def trip_count(module: HloModule, loop: HloInstruction) -> int | None:
    """Return the number of iterations of a loop. Without the compiler's annotation, return None
    unless the loop counts an integer up to a constant."""
    noted = _NOTED.search(loop.rest)
    if noted:
        return int(noted[1])
    counter = _counter(module, loop)
    return None if counter is None else counter.turns


def _counter(module: HloModule, loop: HloInstruction) -> Counter | None:
    """Return the counter of a loop, or None unless the loop counts an integer up to a constant."""
    test = module.root(loop.called.get("condition", ""))
    body = module.root(loop.called.get("body", ""))
    start = _operand(module, loop, 0)
    if test is None or body is None or start is None:
        return None
    if test.op != "compare" or test.text("direction") not in ("LT", "LE"):
        return None
    counter, end = (_operand(module, test, side) for side in (0, 1))
    if counter is None or end is None or counter.op != "get-tuple-element":
        return None
    index = int(counter.text("index") or 0)
    first, last = _constant(module, _element(module, start, index)), _constant(module, end)
    if last is None and end.op == "get-tuple-element":  # a constant that the loop carries
        last = _constant(module, _element(module, start, int(end.text("index") or 0)))
    step = _step(module, _element(module, body, index), index)
    if first is None or last is None or not step:
        return None
    turns = max(0, -(-(last + (test.text("direction") == "LE") - first) // step))
    return Counter(index, first, step, turns)


def _step(
    module: HloModule, added: HloInstruction | None, index: int, *, alone: bool = False
) -> int | None:
    """Return the constant that an instruction adds to element `index` of a loop's carry, or None
    if it is not such an addition. With `alone`, the bare element counts as adding 0."""
    if alone and _is_element(added, index):
        return 0
    if added is None or added.op != "add":
        return None
    sides = [_operand(module, added, side) for side in (0, 1)]
    counted = [_is_element(side, index) for side in sides]
    if counted.count(True) != 1:
        return None
    return _constant(module, sides[counted.index(False)])


def _is_element(found: HloInstruction | None, index: int) -> bool:
    return (
        found is not None and found.op == "get-tuple-element" and found.text("index") == str(index)
    )


def _operand(module: HloModule, of: HloInstruction, number: int) -> HloInstruction | None:
    """Return the instruction that computes an operand, before any copies and conversions; None if
    it is not in the text."""
    here = module.computations[of.computation]
    found = here.get(of.operands[number]) if number < len(of.operands) else None
    while found is not None and found.op in _THROUGH and found.operands:
        found = here.get(found.operands[0])
    return found


def _element(module: HloModule, of: HloInstruction, index: int) -> HloInstruction | None:
    return _operand(module, of, index) if of.op == "tuple" else None


def _constant(module: HloModule, found: HloInstruction | None) -> int | None:
    if found is None or found.op != "constant" or not re.fullmatch(r"-?\d+", found.operands[0]):
        return None
    return int(found.operands[0])
