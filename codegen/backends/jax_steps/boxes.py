"""Steps that move boxes, as constants of a plain JAX module (`support/xla_boxes.py`)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from shardwright.codegen.moves.basis.digits import Digits
from shardwright.ir.exchange import same_devices
from shardwright.ir.layout import DimLayout, Layout
from shardwright.ir.mesh import Digit, Mesh
from shardwright.ir.steps import ReduceStep, Step


@dataclass(frozen=True)
class StepBoxes:
    """The constants of a step that moves boxes. Each field is the prefix of a constant's name.

    `before`, `after`: the extent and the cuts of each dimension, with cuts given as digits of the
    position; `senders`: see the support module; `ids`: the names of the constants that list the
    devices of both sides.
    """

    before: tuple[tuple[int, tuple[Digits, ...]], ...]
    after: tuple[tuple[int, tuple[Digits, ...]], ...]
    senders: tuple[Digits, Digits, int, int, int]
    ids: tuple[str, str]

    def looked_at(self, devices: int) -> int:
        """Return an upper bound on the number of boxes that a module visits when traced, empty
        boxes included."""
        holders = math.prod(size for _, size in self.senders[0])
        return devices * self.senders[2] * (devices // holders)


def boxes_of(step: Step, source: Mesh) -> StepBoxes:
    """Return the constants of a step. `source`: the mesh whose device ids are in SOURCE_IDS."""
    if isinstance(step, ReduceStep):
        before, after = step.reduction.before, step.reduction.after
        own = pairs_of((*before.free, *step.reduction.kept))
        sides = _cuts(before.dims[before.hidden :]), _cuts(after.dims[after.hidden :])
        return StepBoxes(*sides, (own, own, 1, 0, 1), ids_of_ends(before, after, source))
    before, after, rule = step.exchange.source, step.exchange.target, step.exchange.rule
    own = pairs_of(before.free)
    receiver = own if rule.kind == "own" else pairs_of(after.free)
    senders = own, receiver, rule.pieces, rule.cut, rule.unit
    return StepBoxes(
        _cuts(before.dims), _cuts(after.dims), senders, ids_of_ends(before, after, source)
    )


def ids_of_ends(before: Layout, after: Layout, source: Mesh) -> tuple[str, str]:
    """Return the names of the constants that list the devices before and after a step."""
    return ids_name(before.mesh, source), ids_name(after.mesh, source)


def ids_name(mesh: Mesh, source: Mesh) -> str:
    """Return the name of the constant that lists a mesh's devices. `source`: the mesh whose device
    ids are in SOURCE_IDS."""
    return "SOURCE_IDS" if same_devices(mesh, source) else "TARGET_IDS"


def _cuts(dims: tuple[DimLayout, ...]) -> tuple[tuple[int, tuple[Digits, ...]], ...]:
    return tuple((dim.extent, tuple(_levels(dim))) for dim in dims)


def _levels(dim: DimLayout) -> Iterator[Digits]:
    if dim.is_flat:
        yield pairs_of(dim.digits)
        return
    for digit in dim.axis_digits:
        if digit.size > 1:
            yield ((digit.stride, digit.size),)


def pairs_of(digits: tuple[Digit, ...]) -> Digits:
    return tuple((digit.stride, digit.size) for digit in digits)
