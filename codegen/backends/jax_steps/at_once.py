"""Gathers and all-to-alls of several dimensions, each as a single collective.

The moved parts are stacked along the first dimension, in the order of the devices' digits. Before
and after, dimensions are reshaped and transposed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from shardwright.codegen.backends.jax_steps.statements import Statement
from shardwright.codegen.moves.basis.digits import Digits

Ask = Callable[[str, Digits, list[str]], Statement]
"""A function that returns the statement of a collective, given its name, digits and arguments."""


@dataclass(frozen=True)
class StepChange:
    """The minor-most digits that a dimension gained (`is_new`) or lost."""

    axis: int
    digits: Digits
    is_new: bool
    fits: bool  # whether small shards start at multiples of their size within the large shards

    @property
    def count(self) -> int:
        """The number of small shards in a large one."""
        return math.prod(size for _, size in self.digits)


def gathered(ask: Ask, changes: tuple[StepChange, ...], shape: list[int]) -> list[Statement]:
    """Return the statements of one all-gather of shards along several dimensions. Shards arrive
    along a new first dimension, in digit order, and are transposed into place. `shape` is updated
    to that of the result."""
    counts, rank = [change.count for change in changes], len(shape)
    split, order = [*counts, *shape], list[int]()
    places = {change.axis: number for number, change in enumerate(changes)}
    for axis in range(rank):
        order += [places[axis]] if axis in places else []
        order.append(len(counts) + axis)
    for change in changes:
        shape[change.axis] *= change.count
    digits = tuple(pair for change in changes for pair in change.digits)
    return [
        ask("all_gather", digits, ["axis=0"]),
        *turned(split, order, shape),
    ]


def exchanged(
    ask: Ask, pairs: tuple[tuple[int, StepChange], ...], shape: list[int]
) -> list[Statement]:
    """Return the statements of one all-to-all that moves digits between several (gaining, losing)
    pairs of dimensions. Sent and received parts are stacked along the first dimension, one per
    device. `shape` is updated to that of the result."""
    counts, rank = [old.count for _, old in pairs], len(shape)
    losing = {old.axis: number for number, (_, old) in enumerate(pairs)}
    split, front = list[int](), [0] * len(pairs)
    for axis in range(rank):
        for number, (gaining, old) in enumerate(pairs):
            if gaining == axis:
                front[number] = len(split)
                split.append(old.count)
                shape[axis] //= old.count
        split.append(shape[axis])
    order = [*front, *(place for place in range(len(split)) if place not in front)]
    rows, parts = [math.prod(counts), *shape], [*counts, *shape]
    back = list[int]()
    for axis in range(rank):
        back += [losing[axis]] if axis in losing else []
        back.append(len(counts) + axis)
        shape[axis] *= counts[losing[axis]] if axis in losing else 1
    digits = tuple(pair for _, old in pairs for pair in old.digits)
    how = ["split_axis=0", "concat_axis=0", "tiled=True"]
    return [
        *turned(split, order, rows),
        ask("all_to_all", digits, how),
        *turned(parts, back, shape),
    ]


def turned(split: list[int], order: list[int], shape: list[int]) -> list[Statement]:
    """Return statements that reshape an array to `split`, transpose it by `order`, and reshape it
    to `shape`."""
    return [
        Statement(f"x.{name}", tuple(map(str, numbers)))
        for name, numbers in (("reshape", split), ("transpose", order), ("reshape", shape))
    ]
