"""A smaller tensor with the same pattern of cuts, to run in place of one that is too large.

Along a dimension of extent K, with L the least common multiple of both part counts, the twin has
the smallest K' congruent to K modulo L for which all cuts of source and target fall in the same
order, the same cuts coincide, the same shards are empty, and a tile wider than one element stays
wider than one (tiles of width one could hide a wrong stride). Within one residue class modulo L,
every cut is linear in K for large K, so such a K' exists and is at most K.

A twin is valid only if its module has the same form: the same code except for numbers.
"""

from __future__ import annotations

import ast
import dataclasses
import math
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from shardwright.codegen.checks.oracle import definition as oracle
from shardwright.codegen.checks.oracle.definition import Placement

if TYPE_CHECKING:
    from shardwright.ir.reshard import Reshard

MAX_ELEMENTS = 1 << 18
"""The most elements of a tensor that is verified as it is; larger tensors are verified on a
twin."""

SUBLANES, LANES = (8, 16, 32), 128
"""The tilings of TPU memory along the last two dimensions."""


def is_too_large(shape: Sequence[int]) -> bool:
    """Return whether a tensor has too many elements for an interpreter to move."""
    return math.prod(shape) > MAX_ELEMENTS


def twins(reshard: Reshard, source: Placement, target: Placement) -> Iterator[Reshard]:
    """Yield runnable twins of a reshard with these sides: the smallest twin, then the smallest one
    whose shards keep their alignment to TPU memory tiles, then ever larger ones."""
    tilings = [(1, 1), *((rows, LANES) for rows in SUBLANES)]
    growing = [2**power for power in range(3, MAX_ELEMENTS.bit_length())]
    tried = set()
    for at_least, tiling in [*((1, t) for t in tilings), *((g, (1, 1)) for g in growing)]:
        shape = _shape(reshard.shape, source, target, at_least, tiling)
        if shape not in tried and not is_too_large(shape):
            yield dataclasses.replace(reshard, shape=shape)
        tried.add(shape)


def _shape(
    shape: tuple[int, ...],
    source: Placement,
    target: Placement,
    at_least: int,
    tiling: tuple[int, int],
) -> tuple[int, ...]:
    """Return the twin's shape. The last two extents also keep their residue modulo the tiling."""
    moduli = [1] * len(shape) + list(tiling)
    return tuple(
        twin_extent(extent, side(source, dim), side(target, dim), at_least, moduli[dim + 2])
        for dim, extent in enumerate(shape)
    )


def form(text: str) -> str:
    """Return a module's code without the values of numbers and strings, and without repeated
    elements in lists of constants. Modules that differ only in these have equal forms."""
    with _PARSING:
        tree = ast.parse(text)
    return ast.unparse(_Form().visit(tree))


# Python 3.11 counts the depth of a tree being built per interpreter, not per thread: two parsers at
# once fail with `SystemError: AST constructor recursion depth mismatch`. Each backend is verified
# in its own thread.
_PARSING = threading.Lock()


class _Form(ast.NodeTransformer):
    def visit_Tuple(self, node: ast.Tuple) -> ast.expr:
        return _short(self.generic_visit(node), node.elts)

    def visit_List(self, node: ast.List) -> ast.expr:
        return _short(self.generic_visit(node), node.elts)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        return node.operand if isinstance(node.operand, ast.Constant) else node

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if isinstance(node.value, str):
            return ast.Constant("")
        return ast.Constant(0) if type(node.value) is int else node


def _short(node: ast.AST, elements: list[ast.expr]) -> ast.expr:
    """Drop repeated elements from a list of constants or of lists."""
    assert isinstance(node, ast.Tuple | ast.List)
    if all(isinstance(each, ast.Constant | ast.Tuple | ast.List) for each in elements):
        node.elts = list({ast.dump(each): each for each in elements}.values())
    return node


Side = tuple[tuple[int, ...], str]
"""The cut of a dimension on one side: the sizes of the axis references that split it, and the
split."""


def side(placement: Placement, dim: int) -> Side:
    return tuple(placement.ref_size(ref) for ref in placement.dims[dim]), placement.split


def twin_extent(
    extent: int, source: Side, target: Side, at_least: int = 1, modulus: int = 1
) -> int:
    """Return the smallest extent, at least `at_least`, with the same pattern of cuts and with all
    cuts at the same residues modulo `modulus`. Return `extent` itself if there is no smaller one.

    >>> twin_extent(128256, ((8,), "flat"), ((), "flat"))
    16
    >>> twin_extent(50257, ((2, 4), "flat"), ((4,), "flat"))
    65
    """
    period = modulus * math.lcm(math.prod(source[0]), math.prod(target[0]))
    wanted = _pattern(extent, (source, target))
    for smaller in range((extent - at_least) % period + at_least, extent, period):
        candidate = _pattern(smaller, (source, target))
        if all(map(np.array_equal, candidate, wanted)):
            return smaller
    return extent


def _pattern(
    extent: int, sides: Sequence[Side]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the rank of every cut among all cuts, and the width of every tile, where widths above
    2 count as 2."""
    ends = [0, extent]
    for sizes, split in sides:
        for shard in oracle.shard_indices(extent, sizes, split):
            assert isinstance(shard, range)
            ends += [shard.start, shard.stop]
    places, ranks = np.unique(np.array(ends, dtype=np.int64), return_inverse=True)
    return ranks.astype(np.int64), np.minimum(np.diff(places), 2)
