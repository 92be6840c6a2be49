"""Estimate the passes over HBM that XLA makes around collectives on a TPU.

A TPU stores an array in tiles of its last two dimensions, but the parts of an all-to-all must be
contiguous. XLA therefore changes the layout of a shard before an all-to-all that splits a dimension
other than the first, and after an all-to-all that joins such a dimension. This takes one pass, or
two if the last dimension is joined, because tiles are rebuilt. The second of these passes comes
after a following gather or permute, and is omitted if the columns of a matrix are joined and then
split again. The result of a collective is copied once more if it leaves the program. Small floats
that a module views as integers take one pass to convert to integers and one to convert back, unless
another pass also does the conversion. Sums take no pass, and successive slices take one pass
together.

The rules come from HLO compiled for v5e (jax 0.10.2, libtpu 0.0.42). They give the exact bytes if
the last dimension of all shards is a multiple of 128 and the dimension before it a multiple of 8;
otherwise they are an estimate, usually too low. `bench/xla_copies.md` compares the estimate with
the compiled HLO, for modules and for XLA's own reshards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, NamedTuple

Form = Literal["tiled", "apart", "several", "whole"]
"""The form of an all-to-all. "tiled": parts are along an existing dimension. "apart": along a
dimension of their own. "several": along one dimension for the parts of several pairs of
dimensions. "whole": the form of XLA's partitioner if all axes of a dimension move."""

ROWS, LANES = 8, 128
"""The number of rows of a tile in memory, and the number of elements per row."""


class Standing(IntEnum):
    """The position of a dimension in memory: first, in the middle, or last."""

    FIRST = 0
    MIDDLE = 1
    LAST = 2

    @staticmethod
    def of(shape: Sequence[int], axis: int) -> Standing:
        """Return the position of dimension `axis` in a shape, ignoring earlier dimensions of extent
        1."""
        if math.prod(shape[:axis]) == 1:
            return Standing.FIRST
        return Standing.LAST if axis == len(shape) - 1 else Standing.MIDDLE


class Laid(NamedTuple):
    """An operation of a program on a TPU.

    `elements`: the number of elements of its result. `split`, `joined`, `form`, `is_matrix`: for an
    all-to-all, the positions of the dimensions that it splits and joins, its form, and whether the
    shard has two dimensions. `turned`: the number of additional passes, which reorder data that was
    gathered along several dimensions or is about to be added, or rebuild tiles of fewer than ROWS
    rows. `keeps_floats`: whether XLA moves floats unchanged, without adding zeros or reducing over
    a dimension of extent 1.
    """

    op: Literal["slice", "all-to-all", "all-gather", "permute", "sum", "boxes"]
    elements: int
    split: Standing = Standing.FIRST
    joined: Standing = Standing.FIRST
    form: Form = "tiled"
    is_matrix: bool = False
    turned: int = 0
    keeps_floats: bool = True


def exchanged(shape: Sequence[int], split: int, joined: int, count: int, form: Form) -> Laid:
    """Return an all-to-all that splits dimension `split` of a shard into `count` parts, and joins
    parts along dimension `joined`. `shape`: the shape of the shard."""
    places = Standing.of(shape, split), Standing.of(shape, joined)
    small = joined == len(shape) - 2 and shape[joined] < ROWS
    keeps = 1 not in (*shape, shape[split] // count)
    return Laid("all-to-all", math.prod(shape), *places, form, len(shape) == 2, int(small), keeps)


def gathered(before: Sequence[int], after: Sequence[int], turned: int = 0) -> Laid:
    """Return an all-gather. `before`, `after`: the shapes of the shard and of the result. XLA
    gathers vectors by summing shards padded with zeros, so floats may change their bits."""
    keeps = sum(extent > 1 for extent in before) > 1
    return Laid("all-gather", math.prod(after), turned=turned, keeps_floats=keeps)


class Passes(NamedTuple):
    """The bytes that a device reads and writes in passes. `staying`: the bytes in any program.
    `leaving`: the additional bytes if the result leaves the program."""

    staying: int = 0
    leaving: int = 0


def passes_of(program: Sequence[Laid], elements: int, itemsize: int, as_bits: bool) -> Passes:
    """Return the passes of a program.

    `elements`: the number of elements of the first shard. `as_bits`: whether the program views
    floats as integers. An empty program has no passes, because its result is its argument.
    """
    walk = _Walk(program, 2 * itemsize * elements, itemsize, as_bits)
    for each, following in zip(program, (*program[1:], None), strict=False):
        if following is None or not each.op == following.op == "slice":
            walk.take(each, following)
    return walk.end()


@dataclass
class _Walk:
    """The passes of a program so far, and the resulting state of the array."""

    program: Sequence[Laid]
    nbytes: int  # the bytes of one pass over the array, read and written
    itemsize: int
    as_bits: bool
    staying: int = 0  # the bytes of all passes so far
    is_viewed: bool = False  # whether the array is viewed as integers
    late: int = 0  # the number of passes that follow after a gather or permute
    given: bool = False  # whether the array is the result of a collective
    fuses: bool = False  # whether the last pass can view the array as floats again
    by_columns: bool = False  # whether columns of a matrix were joined, but not yet interleaved

    def take(self, each: Laid, following: Laid | None) -> None:
        """Add the passes of an operation. `following`: the next operation."""
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
            before = 0  # the late passes leave the layout that this split needs
        if self.by_columns and each.form == "tiled" and each.split == Standing.LAST:
            before, self.late = before - 1, 0  # the joined columns already have the split's layout
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
        self._flush()
        if self.as_bits and self.program and not self.fuses:
            return Passes(self.staying + self.nbytes)
        leaves = self.given and not self.as_bits
        return Passes(self.staying, self.nbytes if leaves else 0)


def _around(each: Laid, following: Laid | None) -> tuple[int, int]:
    """Return the number of passes before and after an all-to-all of floats of at least 2 bytes.
    `following`: the next operation."""
    before, after = int(each.split), int(each.joined)
    if each.split == Standing.LAST and each.form == "tiled":
        before = 2 if following and each.is_matrix else 1
    elif each.split == Standing.LAST and each.form == "whole" and each.joined == Standing.FIRST:
        before, after = (2, 1) if following and following.op == "all-to-all" else (1, 0)
    if each.form == "tiled" and each.joined == Standing.FIRST and not each.is_matrix:
        after = 1
    return before, after
