"""Passes over HBM that XLA makes around collectives on a TPU.

A TPU keeps arrays in tiles of the last two dimensions, but the parts of an all-to-all lie one after
another. So XLA relays out a shard before an all-to-all that splits a dimension other than the
first, and after one that joins such a dimension: once, or twice if the last dimension is joined,
since that rebuilds tiles. The second pass waits for a following gather or permute, and is not
needed if the columns of a matrix are joined and then split again. A collective's result is copied
once more if it leaves the program. Small floats that a module views as integers take a pass before
and after, unless another pass includes it. Sums take none, and successive slices together take one.

The rules come from HLO compiled for v5e (jax 0.10.2, libtpu 0.0.42). They match its bytes if the
last dimension of all shards is a multiple of 128 and the one before it of 8; otherwise they are an
estimate, mostly too low. `bench/xla_copies.md` compares both figures for modules and for XLA's own
reshards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, NamedTuple

Form = Literal["tiled", "apart", "several", "whole"]
"""The form of an all-to-all: tiled; with one dimension for the parts; with one for the parts of
several pairs of dimensions; or, where all axes of a dimension move, that of XLA's partitioner."""

ROWS, LANES = 8, 128
"""Rows of a tile of memory, and elements per row."""


class Standing(IntEnum):
    """The position of a dimension in memory: first, in the middle, or last."""

    FIRST = 0
    MIDDLE = 1
    LAST = 2

    @staticmethod
    def of(shape: Sequence[int], axis: int) -> Standing:
        """Return the position of a dimension in a shape."""
        if math.prod(shape[:axis]) == 1:
            return Standing.FIRST
        return Standing.LAST if axis == len(shape) - 1 else Standing.MIDDLE


class Laid(NamedTuple):
    """An operation of a program on a TPU: its name, the elements of its result, and for an
    all-to-all its form and the dimensions that it splits and joins. `turned`: passes that reorder
    data gathered along several dimensions or about to be added, or that rebuild tiles of fewer than
    ROWS rows. `keeps_floats`: whether XLA only moves floats here, without adding zeros or reducing
    over a dimension of extent 1."""

    op: Literal["slice", "all-to-all", "all-gather", "permute", "sum", "boxes"]
    elements: int
    split: Standing = Standing.FIRST
    joined: Standing = Standing.FIRST
    form: Form = "tiled"
    is_matrix: bool = False
    turned: int = 0
    keeps_floats: bool = True


def exchanged(shape: Sequence[int], split: int, joined: int, count: int, form: Form) -> Laid:
    """Return an all-to-all of a shard that splits one dimension into `count` parts and joins
    another."""
    places = Standing.of(shape, split), Standing.of(shape, joined)
    small = joined == len(shape) - 2 and shape[joined] < ROWS
    keeps = 1 not in (*shape, shape[split] // count)
    return Laid("all-to-all", math.prod(shape), *places, form, len(shape) == 2, int(small), keeps)


def gathered(before: Sequence[int], after: Sequence[int], turned: int = 0) -> Laid:
    """Return an all-gather of shards; for vectors XLA adds zero-padded shards."""
    keeps = sum(extent > 1 for extent in before) > 1
    return Laid("all-gather", math.prod(after), turned=turned, keeps_floats=keeps)


class Passes(NamedTuple):
    """Bytes that a device reads and writes in passes. `leaving`: those needed only if the result
    leaves the program."""

    staying: int = 0
    leaving: int = 0


def passes_of(program: Sequence[Laid], elements: int, itemsize: int, as_bits: bool) -> Passes:
    """Return the passes of a program over a shard with this many elements; `as_bits`: whether they
    are viewed as integers. An empty program has none, since its result is its argument."""
    walk = _Walk(program, 2 * itemsize * elements, itemsize, as_bits)
    for each, following in zip(program, (*program[1:], None), strict=False):
        if following is None or not each.op == following.op == "slice":
            walk.take(each, following)
    return walk.end()


@dataclass
class _Walk:
    """Passes so far over an array of this many bytes, read and written. `late`: passes that wait
    for the end; `given`: whether the array is a collective's result; `fuses`: whether the last pass
    may view the array as floats again; `by_columns`: whether columns of a matrix were joined but
    their parts still lie one after another."""

    program: Sequence[Laid]
    nbytes: int
    itemsize: int
    as_bits: bool
    staying: int = 0
    is_viewed: bool = False
    late: int = 0
    given: bool = False
    fuses: bool = False
    by_columns: bool = False

    def take(self, each: Laid, following: Laid | None) -> None:
        """Add the passes of an operation."""
        nbytes = 2 * self.itemsize * each.elements
        match each.op:
            case "slice":
                self._flush()
                self.staying += nbytes
                self.is_viewed, self.given, self.fuses = True, False, True
            case "all-to-all":
                self._exchange(each, following)
            case "all-gather" | "permute":
                self._view()
                self.late = max(self.late, each.turned)
                self.given, self.fuses = not self.late, False
            case "sum" | "boxes":
                self._flush()
                self._view()
                self.staying += each.turned * self.nbytes
                self.given, self.fuses = bool(each.turned), False
        self.nbytes = nbytes
        self.by_columns = each.is_matrix and each.form == "tiled" and each.joined == Standing.LAST

    def _exchange(self, each: Laid, following: Laid | None) -> None:
        before, after = _around(each, following)
        if each.form == "whole" and each.split == Standing.LAST and self.late:
            before = 0  # the passes that join this dimension lay it out for the split
        if self.by_columns and each.form == "tiled" and each.split == Standing.LAST:
            before, self.late = before - 1, 0  # they produce the layout that the split needs
        if not (each.form == "tiled" and each.split == Standing.MIDDLE):
            self._view()
        self.is_viewed = True
        self._flush()
        retiled = each.split == Standing.FIRST or (each.is_matrix and before == 1)
        before += retiled and self.itemsize == 1 and not self.as_bits
        at_once = after if each.form == "several" else min(after, 1)
        self.staying += (before + at_once) * self.nbytes
        self.late = after - at_once + each.turned
        self.given, self.fuses = after == 0, after == 1 and each.form in ("apart", "whole")

    def _view(self) -> None:
        if self.as_bits and not self.is_viewed:
            self.staying += self.nbytes
        self.is_viewed = True

    def _flush(self) -> None:
        self.staying += self.late * self.nbytes
        self.late = 0

    def end(self) -> Passes:
        """Return the passes including the final ones."""
        self._flush()
        if self.as_bits and self.program and not self.fuses:
            return Passes(self.staying + self.nbytes)
        leaves = self.given and not self.as_bits
        return Passes(self.staying, self.nbytes if leaves else 0)


def _around(each: Laid, following: Laid | None) -> tuple[int, int]:
    """Return the passes before and after an all-to-all of floats of 2 bytes or more."""
    before, after = int(each.split), int(each.joined)
    if each.split == Standing.LAST and each.form == "tiled":
        before = 2 if following and each.is_matrix else 1
    elif each.split == Standing.LAST and each.form == "whole" and each.joined == Standing.FIRST:
        before, after = (2, 1) if following and following.op == "all-to-all" else (1, 0)
    if each.form == "tiled" and each.joined == Standing.FIRST and not each.is_matrix:
        after = 1
    return before, after
