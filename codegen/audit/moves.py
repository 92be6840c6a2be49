"""Trace a value's elements to their origin, through operations that only move elements.

An element is identified by a device and an index on it; arrays of elements are traced together. A
trace ends at an operation that computes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shardwright.codegen.audit.values import HloValues
from shardwright.codegen.spec.hlo.received import ends
from shardwright.codegen.spec.hlo.text import HloArray, HloInstruction
from shardwright.ir.arrays import Integers

_SAME = ("copy", "convert", "copy-start", "copy-done", "opt-barrier")
_GATHERS = ("all-gather", "all-gather-start", "all-gather-done")
_PERMUTES = ("collective-permute", "collective-permute-start", "collective-permute-done")


class Elements(NamedTuple):
    """Some elements of a value. `devices`: the device of each element; `at`: its index, [elements,
    rank]."""

    devices: Integers
    at: Integers


class Trace(NamedTuple):
    """The origin of some elements. `source`: the instruction that produces them; `elements`: the
    same elements in the value of that instruction; `passed`: the instructions in between."""

    source: HloInstruction
    elements: Elements
    passed: tuple[HloInstruction, ...]


def trace(values: HloValues, each: HloInstruction, elements: Elements) -> Trace:
    passed: list[HloInstruction] = []
    each = values.resolved(each)
    while True:
        before = values.operand(each)
        moved = None if before is None else _back(values, each, before, elements)
        if before is None or moved is None:
            return Trace(each, elements, tuple(passed))
        passed.append(each)
        each, elements = before, moved


def _back(
    values: HloValues, each: HloInstruction, before: HloInstruction, elements: Elements
) -> Elements | None:
    """Return the corresponding elements of the operand, or None if the operation does more than
    move elements."""
    devices, at = elements
    if len(each.arrays) != 1 and each.op not in ("copy-start", *_GATHERS, *_PERMUTES):
        return None
    match each.op:
        case op if op in _SAME or op.endswith("-done"):
            return elements
        case "reshape" | "bitcast":
            return _reshaped(each, before, elements)
        case "transpose":
            order = each.numbers("dimensions")
            inner = np.empty_like(at)
            inner[:, list(order)] = at
            return Elements(devices, inner)
        case op if op in _GATHERS:
            return _gathered(values, each, before, elements)
        case op if op in _PERMUTES:
            return _permuted(values, each, elements)
        case _:
            return None


def _reshaped(each: HloInstruction, before: HloInstruction, elements: Elements) -> Elements | None:
    ours, theirs = each.arrays[0], before.arrays[0]
    if ours.bits != theirs.bits:
        return None
    physical = each.op == "bitcast"  # a bitcast moves no element in memory
    flat = np.zeros(len(elements.at), dtype=np.int64)
    for axis, extent in _major_to_minor(ours, physical):
        flat = flat * extent + elements.at[:, axis]
    inner = np.empty((len(flat), len(theirs.shape)), dtype=np.int64)
    for axis, extent in reversed(_major_to_minor(theirs, physical)):
        inner[:, axis] = flat % extent
        flat = flat // extent
    return Elements(elements.devices, inner)


def _major_to_minor(array: HloArray, physical: bool) -> list[tuple[int, int]]:
    order = reversed(array.order) if physical else range(len(array.shape))
    return [(axis, array.shape[axis]) for axis in order]


def _gathered(
    values: HloValues, each: HloInstruction, before: HloInstruction, elements: Elements
) -> Elements | None:
    dims = each.numbers("dimensions")
    if len(dims) != 1 or len(before.arrays) != 1 or len(each.operands) != 1:
        return None
    table = _members(values, each)
    if table is None:
        return None
    extent = before.arrays[0].shape[dims[0]]
    inner = elements.at.copy()
    member = inner[:, dims[0]] // extent
    inner[:, dims[0]] %= extent
    return Elements(table[elements.devices, member], inner)


def _members(values: HloValues, each: HloInstruction) -> Integers | None:
    """Return the members of each device's group, or None unless every device is in a group."""
    groups = ends(each.op.removesuffix("-start"), each.rest, values.devices)
    found = {device: group for group in groups for device in group}
    if sorted(found) != list(range(values.devices)) or len({*map(len, groups)}) != 1:
        return None
    return np.array([found[device] for device in range(values.devices)], dtype=np.int64)


def _permuted(values: HloValues, each: HloInstruction, elements: Elements) -> Elements | None:
    pairs = ends("collective-permute", each.rest, values.devices)
    sender = {target: source for source, target in pairs}
    if sorted(sender) != list(range(values.devices)):
        return None  # a device without a sender gets zeros
    table = np.array([sender[device] for device in range(values.devices)], dtype=np.int64)
    return Elements(table[elements.devices], elements.at)
