"""Matmuls of tensors as matmuls of matrices: what a module writes around a kernel, with a gather
and a product, or a product and a scatter, in the kernel's place."""

from __future__ import annotations

import contextlib
import functools
import math
import random
from typing import Any

import numpy as np
import pytest

from shardwright.codegen.backends.jax_spmd.rings import ProgramRing
from shardwright.codegen.partition.local.layout import LocalLayout
from shardwright.codegen.partition.matrices import PARTNERS, AsMatrices, Turn
from shardwright.codegen.partition.overlapped import BesideMatmul
from shardwright.ir.errors import InputError
from shardwright.ir.matmul import SIDES, Side
from shardwright.ir.program import Op

PARTS = 2


def dot_general(lhs: tuple[int, ...], rhs: tuple[int, ...], batch: tuple[int, ...] = ()) -> Op:
    params = (("batch_lhs", batch), ("batch_rhs", batch))
    return Op("dot_general", (0, 1), (2,), (("contract_lhs", lhs), ("contract_rhs", rhs), *params))


class _Ring:
    """In the place of a kernel: parts of rows or columns, of one device after another, are put
    together, or products are added up and cut in parts."""

    def __init__(self, side: Side, end: int) -> None:
        self.side, self.end = side, end
        self.given: list[Any] = []
        self.made: list[Any] = []

    def product(self, a: Any, b: Any, interpret: bool) -> Any:
        """Note what a device gives; once all have, return what it gets."""
        if not self.made:
            self.given.append((a, b))
            raise StopIteration
        return self.made.pop(0)

    def run(self) -> None:
        sides = [np.stack(each) for each in zip(*self.given, strict=True)]
        self.made = together(self.side, self.end, *sides, np.matmul)


def together(side: Side, dim: int, a: Any, b: Any, product: Any) -> list[Any]:
    """What each device gets of a product for which one tensor travels along a dimension."""
    if side == "out":
        return np.split(sum(map(product, a, b)), PARTS, dim)
    if side == "lhs":
        return [product(np.concatenate(a, dim), own) for own in b]
    return [product(own, np.concatenate(b, dim)) for own in a]


def written(side: Side, end: int, matrices: AsMatrices, turn: Turn | None, shapes: Any) -> Any:
    """What a module computes on all devices, from what each has."""
    nothing: Any = None
    beside = BesideMatmul(nothing, nothing, side, "y", None, "", matrices, turn)
    steps = ProgramRing("RING", beside, nothing).statements("y", ["a", "b"], shapes, str)
    text = "\n".join(f"{to} = {by[0]}({', '.join(by[1])})" for to, by in steps)

    def run(a: Any, b: Any) -> list[Any]:
        ring, found = _Ring(side, end), []
        for again in (False, True):
            for own in zip(a, b, strict=True):
                known = {"jnp": np, "a": own[0], "b": own[1], "interpret": True, "RING": ring}
                with contextlib.suppress(StopIteration):
                    exec(text, known)
                    found.append(known["y"])
            if not again:
                ring.run()
        return found

    return run


def case(seed: int) -> tuple[Side, int, int, list[tuple[int, ...]], AsMatrices]:
    """Which end of which tensor travels, along which dimension, and what devices have."""
    rng = random.Random(seed)
    side, end = rng.choice(list(PARTNERS))
    groups = [[rng.choice((1, 2, 3)) for _ in range(rng.randint(1, 3))] for _ in range(3)]
    rows, inner, columns = groups
    factor = {("lhs", 0): 0, ("lhs", 1): 1, ("rhs", 0): 1, ("rhs", 1): 2}.get(
        (side, end), 0 if end == 0 else 2
    )
    at = rng.randrange(len(groups[factor]))
    groups[factor][at] *= PARTS
    whole = [(*rows, *inner), (*inner, *columns), (*rows, *columns)]
    dims = tuple(range(len(rows), len(rows) + len(inner)))
    op = dot_general(dims, tuple(range(len(inner))))
    matrices = AsMatrices.of(op, (len(whole[0]), len(whole[1]), len(whole[2])))
    assert matrices is not None
    return side, end, matrices.groups(side)[end][at], whole, matrices


def fault(seed: int, turns: bool = True) -> str:
    side, end, dim, whole, matrices = case(seed)
    place = SIDES.index(side)
    turn = matrices.turn(side, dim, PARTS, whole[place]) if turns else None
    local = list(whole)
    local[place] = tuple(n // PARTS if d == dim else n for d, n in enumerate(whole[place]))
    rng = np.random.default_rng(seed)
    given = [rng.integers(-4, 5, (PARTS, *shape)) for shape in local[:2]]
    count = len(matrices.lhs[1])
    product = functools.partial(np.tensordot, axes=count)
    wanted = together(side, dim, *given, product)
    found = written(side, end, matrices, turn, local)(*given)
    pairs = zip(found, wanted, strict=True)
    return "" if all(np.array_equal(one, other) for one, other in pairs) else "off"


def test_what_is_written_around_a_kernel_is_the_product_of_tensors() -> None:
    assert [seed for seed in range(200) if fault(seed)] == []


def test_what_is_not_turned_is_found() -> None:
    """Where the moved dimension is not the first of several, and only there."""
    for seed in range(40):
        side, _, dim, whole, matrices = case(seed)
        turn = matrices.turn(side, dim, PARTS, whole[SIDES.index(side)])
        if turn is not None and math.prod(whole[SIDES.index(side)]) > PARTS:
            assert fault(seed, turns=False), seed


def test_other_products_are_none_of_matrices() -> None:
    assert AsMatrices.of(dot_general((0,), (0,)), (2, 2, 2)) is None  # x.T @ w
    assert AsMatrices.of(dot_general((2,), (1,), (0,)), (3, 3, 3)) is None  # several products
    assert AsMatrices.of(dot_general((1,), (0,)), (2, 1, 1)) is None  # by a vector
    assert AsMatrices.of(dot_general((2, 1), (0, 1)), (3, 3, 2)) is None  # in another order
    assert AsMatrices.of(dot_general((2, 1), (1, 0)), (3, 3, 2)) is not None


def test_parts_are_the_minor_most_blocks() -> None:
    matrices = AsMatrices.of(dot_general((2,), (0,)), (3, 2, 3))
    assert matrices is not None
    split = LocalLayout((("d",), ("u", "t"), ()))
    assert matrices.sharding("lhs", split, 1, ("t",)) == '[{"d", "u", "t"}, {}]'
    assert matrices.sharding("lhs", split.with_dim(0, ("t",)).with_dim(1, ()), 0, ("t",)) == (
        '[{"t"}, {}]'
    )
    with pytest.raises(InputError, match="not one block"):
        matrices.sharding("lhs", split, 1, ("u",))


def test_terms_of_a_product_stay_terms() -> None:
    """Along the axes that split what is summed over; operands that are terms are not multiplied."""
    matrices = AsMatrices.of(dot_general((1,), (0,)), (2, 2, 2))
    assert matrices is not None
    terms = LocalLayout(((), ("t",)), ("d",))
    assert matrices.sharding("out", terms, 0, ()) == '[{}, {"t"}], unreduced={"d"}'
    with pytest.raises(InputError, match="an operand of it is terms"):
        matrices.sharding("lhs", terms, 0, ())
