"""XLA's own reshard as a TPU would run it, read from its HLO for host devices.

On host devices an all-to-all takes and returns a tuple of parts. A fusion stacks them along a new
dimension, and a transpose moves it in front of the joined one. If another all-to-all follows, the
parts are concatenated at once, and the fusions that cut the next parts reorder them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from shardwright.codegen.hlo.text import HloInstruction, HloModule
from shardwright.codegen.planner.network.passes import ROWS, Form, Laid, Standing, gathered


def laid_by(text: str) -> Iterator[Laid]:
    """Yield the operations of a program in order; on a TPU, consecutive gathers are one."""
    module = HloModule(text)
    gathers: list[HloInstruction] = []
    for each in module.computations[module.entry].values():
        if each.op.removesuffix("-start") == "all-gather":
            gathers.append(each)
            continue
        found = tuple(_laid(module, each))
        if found and gathers:
            yield _gathered(module, gathers)
            gathers = []
        yield from found
    if gathers:
        yield _gathered(module, gathers)


def _gathered(module: HloModule, gathers: list[HloInstruction]) -> Laid:
    """Return consecutive all-gathers; those along several dimensions at once return parts that
    still need reordering."""
    shape = gathers[-1].arrays[-1].shape
    axes = {axis for each in gathers for axis in each.numbers("dimensions")}
    turned = 1 + (len(shape) - 1 in axes) if len(axes) > 1 else 0
    before = module.operands(gathers[0])[0].arrays[-1].shape
    return gathered(before, shape, turned)


def _laid(module: HloModule, each: HloInstruction) -> Iterator[Laid]:
    elements = math.prod(each.arrays[-1].shape) if each.arrays else 0
    match each.op.removesuffix("-start"):
        case "collective-permute":
            yield Laid("permute", elements)
        case "all-to-all":
            elements *= len(each.operands)
            if any(_cuts(module, one) for one in module.operands(each)):
                yield Laid("slice", elements)
            yield _exchanged(module, each, elements)
        case "dynamic-slice" | "fusion" if elements in _cuts(module, each):
            yield Laid("slice", elements)


def _cuts(module: HloModule, each: HloInstruction) -> set[int]:
    """Return the elements of each part of an array that an instruction keeps. Ignore look-ups in a
    table of all devices: they have signed integers, which `xla.py` never uses."""
    inside = (each, *module.computations.get(each.called.get("calls", ""), {}).values())
    cut = (one.arrays[0] for one in inside if one.op == "dynamic-slice")
    return {math.prod(array.shape) for array in cut if array.dtype != "s32"}


def _exchanged(module: HloModule, each: HloInstruction, elements: int) -> Laid:
    """Return an all-to-all; if its parts are not concatenated as expected, assume no pass before it
    and one after."""
    parts = each.arrays[0].shape
    joined, turned = _joining(module, each)
    if joined is None:
        return Laid("all-to-all", elements, Standing.FIRST, Standing.MIDDLE, "whole")
    (axis,), shape = joined.numbers("dimensions"), joined.arrays[0].shape
    form: Form = "apart" if 1 in shape else "whole"
    split = _place(shape, axis)
    if turned is None:
        return Laid("all-to-all", elements, split, split, form, is_matrix=len(parts) == 3)
    place, shape = turned.numbers("dimensions").index(axis), turned.arrays[0].shape
    small = place == len(shape) - 3 and shape[-2] < ROWS
    after = _place(shape, place)
    return Laid("all-to-all", elements, split, after, form, len(parts) == 3, int(small))


def _place(shape: tuple[int, ...], axis: int) -> Standing:
    """Return the position of the dimension after the dimension of parts."""
    return Standing.of((*shape[:axis], *shape[axis + 1 :]), axis)


def _joining(
    module: HloModule, each: HloInstruction
) -> tuple[HloInstruction | None, HloInstruction | None]:
    """Return the concatenation of an all-to-all's parts, and its transpose."""
    for part in _users(module, each):
        for user in _users(module, part):
            if user.op == "concatenate":
                cuts = (_inside(module, cut, user) for cut in _users(module, user))
                return user, _transpose(module, filter(None, cuts))
            if "calls" in user.called:
                body = module.computations[user.called["calls"]].values()
                joined = [one for one in body if one.op == "concatenate"][:1]
                return next(iter(joined), None), _transpose(module, joined)
    return None, None


def _transpose(module: HloModule, given: Iterable[HloInstruction]) -> HloInstruction | None:
    """Return the first transpose among some instructions."""
    users = (user for one in given for user in _users(module, one))
    return next((user for user in users if user.op == "transpose"), None)


def _users(module: HloModule, each: HloInstruction) -> list[HloInstruction]:
    return module.users.get((each.computation, each.name), [])


def _inside(
    module: HloModule, fusion: HloInstruction, operand: HloInstruction
) -> HloInstruction | None:
    """Return the fusion's parameter for an operand; None if it is not a fusion."""
    if "calls" not in fusion.called:
        return None
    body = module.computations[fusion.called["calls"]].values()
    number = fusion.operands.index(operand.name)
    given = (one for one in body if one.op == "parameter" and one.operands == (str(number),))
    return next(given, None)
