"""Derive the operations of XLA's own reshard on a TPU from its HLO for host devices.

On host devices, an all-to-all takes and returns a tuple of parts. A fusion stacks the parts along a
new dimension, and a transpose moves this dimension before the dimension that is joined. If another
all-to-all follows, the parts are concatenated immediately instead, and the fusions that cut the
next parts reorder them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from shardwright.codegen.moves.network.passes import ROWS, Form, Laid, Standing, gathered
from shardwright.codegen.spec.hlo.text import HloInstruction, HloModule


def laid_by(text: str) -> Iterator[Laid]:
    """Yield the operations of a program in order, given its HLO text. Successive all-gathers are
    one operation, as on a TPU."""
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
    """Return successive all-gathers as one operation. If they gather along several dimensions, a
    pass reorders their parts."""
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
    """Return the sizes, in elements, of the slices that an instruction takes.

    Slices of signed integers are ignored. They are look-ups in a table of all devices; the arrays
    of `xla.py` are never signed integers.
    """
    inside = (each, *module.computations.get(each.called.get("calls", ""), {}).values())
    cut = (one.arrays[0] for one in inside if one.op == "dynamic-slice")
    return {math.prod(array.shape) for array in cut if array.dtype != "s32"}


def _exchanged(module: HloModule, each: HloInstruction, elements: int) -> Laid:
    """Return the operation of an all-to-all. If no concatenation joins its parts, assume no pass
    before it and one after it."""
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
    """Return the position in memory of the dimension after dimension `axis`, which numbers the
    parts and is left out."""
    return Standing.of((*shape[:axis], *shape[axis + 1 :]), axis)


def _joining(
    module: HloModule, each: HloInstruction
) -> tuple[HloInstruction | None, HloInstruction | None]:
    """Return the instruction that concatenates the parts of an all-to-all, and the transpose of its
    result; None for each that is missing."""
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
    users = (user for one in given for user in _users(module, one))
    return next((user for user in users if user.op == "transpose"), None)


def _users(module: HloModule, each: HloInstruction) -> list[HloInstruction]:
    return module.users.get((each.computation, each.name), [])


def _inside(
    module: HloModule, fusion: HloInstruction, operand: HloInstruction
) -> HloInstruction | None:
    """Return the parameter of a fusion for one of its operands, or None if it is not a fusion."""
    if "calls" not in fusion.called:
        return None
    body = module.computations[fusion.called["calls"]].values()
    number = fusion.operands.index(operand.name)
    given = (one for one in body if one.op == "parameter" and one.operands == (str(number),))
    return next(given, None)
