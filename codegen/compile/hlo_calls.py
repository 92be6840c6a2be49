"""How often each computation of an HLO module is carried out in one run of the program.

A loop's body counts as often as the loop turns: as the compiler notes it, or as its condition says.
Each branch of a conditional counts as if it were taken.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from shardwright.codegen.compile.hlo_text import HloInstruction, HloModule

_NOTED = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_THROUGH = ("copy", "convert", "bitcast", "copy-done", "copy-start", "reshape")


@dataclass(frozen=True)
class Often:
    """How many times, at least where a loop's turns are not known."""

    times: int
    exact: bool = True


def executions(module: HloModule) -> dict[str, Often]:
    """Return how often each computation is carried out; those that never are, are left out."""
    found: dict[str, Often] = {}
    seen: set[str] = set()

    def visit(computation: str, often: Often) -> None:
        before = found.get(computation, Often(0))
        found[computation] = Often(before.times + often.times, before.exact and often.exact)
        if computation in seen:  # no computation calls itself
            return
        seen.add(computation)
        for instruction in module.computations.get(computation, {}).values():
            for kind, name in instruction.called.items():
                if instruction.op not in ("async-update", "async-done"):  # named again there
                    visit(name, _within(module, instruction, kind, often))
        seen.discard(computation)

    visit(module.entry, Often(1))
    return found


def _within(module: HloModule, caller: HloInstruction, kind: str, often: Often) -> Often:
    if caller.op != "while" or kind != "body":
        return often
    turns = trip_count(module, caller)
    if turns is None:
        return Often(often.times, False)
    return Often(often.times * turns, often.exact)


def trip_count(module: HloModule, loop: HloInstruction) -> int | None:
    """Return how often a loop turns: None unless it counts an integer up to a constant."""
    noted = _NOTED.search(loop.rest)
    if noted:
        return int(noted[1])
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
    if last is None and end.op == "get-tuple-element":  # what the loop carries and never changes
        last = _constant(module, _element(module, start, int(end.text("index") or 0)))
    step = _step(module, _element(module, body, index), index)
    if first is None or last is None or step is None:
        return None
    return max(0, -(-(last + (test.text("direction") == "LE") - first) // step))


def _step(module: HloModule, added: HloInstruction | None, index: int) -> int | None:
    """Return by how much the counter grows in a turn."""
    if added is None or added.op != "add":
        return None
    sides = [_operand(module, added, side) for side in (0, 1)]
    counted = [
        side is not None and side.op == "get-tuple-element" and side.text("index") == str(index)
        for side in sides
    ]
    if counted.count(True) != 1:
        return None
    step = _constant(module, sides[counted.index(False)])
    return step if step else None


def _operand(module: HloModule, of: HloInstruction, number: int) -> HloInstruction | None:
    """Return an operand, behind what only copies it."""
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
