"""A smaller tensor that is cut in the same way, for a tensor too large to run here.

Along a dimension of extent K, with L the least common multiple of both part counts, the twin has
the smallest K' congruent to K modulo L for which all cuts of source and target fall in the same
order, the same ones coincide, the same shards are empty, and a tile that is wider than one element
stays so (a kernel with a wrong stride must not hide in tiles of width one). Within one residue
class modulo L every cut is linear in K once K is large enough, so such a K' exists; K is one.

A twin serves only if its module has the same form: the same code but for the numbers in it.
"""

from __future__ import annotations

import ast
import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from shardwright.codegen import oracle
from shardwright.codegen.oracle import Placement

if TYPE_CHECKING:
    from shardwright.ir.reshard import Reshard

MAX_ELEMENTS = 1 << 17
"""A tensor of more elements than this is verified on its twin."""


def is_too_large(shape: Sequence[int]) -> bool:
    """Whether a tensor has too many elements to be moved by an interpreter."""
    return math.prod(shape) > MAX_ELEMENTS


def twins(reshard: Reshard, source: Placement, target: Placement) -> Iterator[Reshard]:
    """Ever larger twins of a reshard with these sides, from the smallest, while they can run."""
    at_least = 1
    before: tuple[int, ...] = ()
    while True:
        shape = tuple(
            twin_extent(
                extent,
                side_sizes(source, dim),
                source.split,
                side_sizes(target, dim),
                target.split,
                at_least,
            )
            for dim, extent in enumerate(reshard.shape)
        )
        if is_too_large(shape):
            return
        if shape != before:
            yield dataclasses.replace(reshard, shape=shape)
        if shape == reshard.shape:
            return
        before, at_least = shape, 2 * max(at_least, 4)


def form(text: str) -> str:
    """A module's code without its numbers and texts; equal for modules that do the same."""
    return ast.unparse(_Form().visit(ast.parse(text)))


class _Form(ast.NodeTransformer):
    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if isinstance(node.value, str):
            return ast.Constant("")
        return ast.Constant(0) if type(node.value) is int else node


def side_sizes(placement: Placement, dim: int) -> tuple[int, ...]:
    """The sizes of the axis references that split a dimension."""
    return tuple(placement.ref_size(ref) for ref in placement.dims[dim])


def twin_extent(
    extent: int,
    source: Sequence[int],
    source_split: str,
    target: Sequence[int],
    target_split: str,
    at_least: int = 1,
) -> int:
    """The smallest extent of the same residue that is cut in the same pattern; `extent` itself if
    that is below `at_least`.

    >>> twin_extent(128256, (8,), "flat", (), "flat")
    16
    >>> twin_extent(50257, (2, 4), "flat", (4,), "flat")
    65
    """
    period = math.lcm(math.prod(source), math.prod(target))
    sides = ((source, source_split), (target, target_split))
    wanted = _pattern(extent, sides)
    first = (extent - at_least) % period + at_least
    for smaller in range(first, extent, period):
        candidate = _pattern(smaller, sides)
        if all(
            np.array_equal(ours, theirs) for ours, theirs in zip(candidate, wanted, strict=True)
        ):
            return smaller
    return extent


def _pattern(
    extent: int, sides: Sequence[tuple[Sequence[int], str]]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The rank of every cut among all cuts, and the width of every tile, at most 2."""
    ends = [0, extent]
    for sizes, split in sides:
        for shard in oracle.shard_indices(extent, sizes, split):
            assert isinstance(shard, range)
            ends += [shard.start, shard.stop]
    places, ranks = np.unique(np.array(ends, dtype=np.int64), return_inverse=True)
    return ranks.astype(np.int64), np.minimum(np.diff(places), 2)
