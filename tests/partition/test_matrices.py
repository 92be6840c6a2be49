"""Matmuls of tensors as matmuls of matrices: what a module writes around a kernel, with a gather
and a product, or a product and a scatter, in the kernel's place."""

from __future__ import annotations

import contextlib
import itertools
import math
import random
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

from shardwright.codegen.backends.jax_spmd.rings import ProgramRing
from shardwright.codegen.ops.layout import LocalLayout
from shardwright.codegen.partition.matrices import PLAIN, AsMatrices, Turn
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
        self.side, self.end = side, end  # of the last two dimensions
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


def written(case: Case, matrices: AsMatrices, turn: Turn | None, shapes: Any) -> Any:
    """What a module computes on all devices, from what each has of the kernel's operands."""
    nothing: Any = None
    beside = BesideMatmul(nothing, nothing, case.side, "y", None, "", matrices, turn)
    steps = ProgramRing("RING", beside, nothing).statements("y", ["a", "b"], shapes, fresh())
    text = "\n".join(f"{to} = {by if isinstance(by, str) else called(*by)}" for to, by in steps)

    def run(a: Any, b: Any) -> list[Any]:
        ring, found = _Ring(matrices.side(case.side), case.end(matrices) - 3), []
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


def called(function: str, given: list[str]) -> str:
    return f"{function}({', '.join(given)})"


def fresh() -> Any:
    """Names of which none is another's."""
    numbers = itertools.count()
    return lambda name: f"{name}_{next(numbers)}"


class Case(NamedTuple):
    """A product of tensors, whose dimensions are letters, the extents of these, and the dimension
    of one of them that is split in parts which travel."""

    tensors: tuple[str, str, str]
    extents: dict[str, int]
    side: Side
    split: str

    @property
    def op(self) -> Op:
        lhs, rhs, out = self.tensors
        batch = [c for c in out if c in lhs and c in rhs]
        both = [c for c in lhs if c in rhs and c not in batch]
        params = {
            f"{kind}_{side}": tuple(text.index(c) for c in letters)
            for side, text in (("lhs", lhs), ("rhs", rhs))
            for kind, letters in (("batch", batch), ("contract", both))
        }
        return Op("dot_general", (0, 1), (2,), tuple(sorted(params.items())))

    def ways(self) -> list[AsMatrices]:
        lhs, rhs, _ = self.tensors
        return list(AsMatrices.every(self.op, (len(lhs), len(rhs))))

    @property
    def dim(self) -> int:
        return self.tensors[SIDES.index(self.side)].index(self.split)

    def end(self, matrices: AsMatrices) -> int:
        """Whether the parts are rows (1) or columns (2) of the matrices."""
        groups = matrices.groups(matrices.side(self.side))
        return next(n for n, group in enumerate(groups) if self.dim in group)

    def shape(self, side: Side, whole: bool = True) -> tuple[int, ...]:
        own = dict(self.extents)
        if side == self.side and not whole:
            own[self.split] //= PARTS
        return tuple(own[c] for c in self.tensors[SIDES.index(side)])


def case(seed: int) -> Case:
    """A product whose operands' dimensions lie in any order, of which two may be numbers."""
    rng = random.Random(seed)
    letters = iter("abcdefghijk")
    counts = rng.choice((0, 0, 1, 2)), *(rng.randint(1, 2 + (seed % 2)) for _ in range(3))
    numbers, rows, inner, columns = ["".join(itertools.islice(letters, n)) for n in counts]

    def mixed(*groups: str) -> str:
        every = list("".join(groups))
        if rng.random() < 0.7:
            rng.shuffle(every)
        return "".join(every)

    lhs, rhs = mixed(numbers, rows, inner), mixed(numbers, inner, columns)
    out = numbers + "".join(sorted(rows, key=lhs.index)) + "".join(sorted(columns, key=rhs.index))
    tensors = lhs, rhs, out
    side = rng.choice(SIDES)
    split = rng.choice([c for c in tensors[SIDES.index(side)] if c not in numbers])
    extents = {c: rng.choice((1, 2, 3)) for c in numbers + rows + inner + columns}
    extents[split] *= PARTS
    return Case(tensors, extents, side, split)


def fault(seed: int, number: int, turns: bool = True) -> str:
    """What is wrong with one of the ways to multiply tensors as matrices."""
    own = case(seed)
    matrices = own.ways()[number]
    side = matrices.side(own.side)
    turn = matrices.turn(side, own.dim, PARTS, own.shape(own.side)) if turns else None
    rng = np.random.default_rng(seed)
    given = [rng.integers(-4, 5, (PARTS, *own.shape(s, whole=False))) for s in SIDES[:2]]
    lhs, rhs, out = own.tensors
    wanted = together(own.side, own.dim, *given, partial(np.einsum, f"{lhs},{rhs}->{out}"))
    order = [0, 1] if not matrices.swapped else [1, 0]
    shapes = [given[n].shape[1:] for n in order] + [own.shape("out", whole=False)]
    found = written(own, matrices, turn, shapes)(*(given[n] for n in order))
    pairs = zip(found, wanted, strict=True)
    return "" if all(np.array_equal(one, other) for one, other in pairs) else "off"


def test_what_is_written_around_a_kernel_is_the_product_of_tensors() -> None:
    """Whatever the order of dimensions, the product transposed too."""
    every = [(seed, number) for seed in range(200) for number in range(len(case(seed).ways()))]
    assert [each for each in every if fault(*each)] == []
    assert len(every) > 500


def test_what_is_not_turned_is_found() -> None:
    """Where the moved dimension is not the first of several, and only there."""
    seen = 0
    for seed in range(80):
        own = case(seed)
        matrices = own.ways()[0]
        turn = matrices.turn(matrices.side(own.side), own.dim, PARTS, own.shape(own.side))
        if turn is not None and math.prod(own.shape(own.side)) > PARTS:
            seen += 1
            assert fault(seed, 0, turns=False), seed
    assert seen > 5


def test_what_is_not_transposed_is_found() -> None:
    """A weight's gradient, of which an operand lies otherwise; and a product that is transposed."""
    own = Case(("sd", "sf", "df"), {"s": 4, "d": 4, "f": 4}, "out", "d")
    plain, swapped = own.ways()
    assert [plain.is_in_order(side) for side in SIDES] == [False, True, True]
    assert [swapped.is_in_order(side) for side in SIDES] == [False, True, False]
    for matrices in (plain, swapped):
        assert matrices.side("out") == "out"
        lying = AsMatrices(swapped=matrices.swapped)
        rng = np.random.default_rng(0)
        given = [rng.integers(-4, 5, (PARTS, 4, 4)) for _ in range(2)]
        wanted = together("out", 0, *given, partial(np.einsum, "sd,sf->df"))
        pairs = given[:: -1 if matrices.swapped else 1]
        for way, right in ((matrices, True), (lying, False)):
            found = written(own, way, None, [(4, 4), (4, 4), (2, 4)])(*pairs)
            same = all(np.array_equal(*each) for each in zip(found, wanted, strict=True))
            assert same is right


def ways(*given: Any) -> list[AsMatrices]:
    op, ranks = dot_general(*given[:-1]), given[-1]
    return list(AsMatrices.every(op, ranks))


def test_products_of_several_or_transposed_matrices() -> None:
    plain, _ = ways((1,), (0,), (2, 2))
    assert plain == PLAIN
    several, _ = ways((2,), (1,), (0,), (3, 3))
    assert several == AsMatrices(*(((0,), (1,), (2,)),) * 3)
    assert ways((1,), (0,), (2, 1)) == []  # by a vector
    assert ways((), (), (2, 2)) == []
    one, *_ = ways((2, 1), (0, 1), (3, 3))
    assert one.lhs == ((), (0,), (1, 2))
    assert one.rhs == ((), (1, 0), (2,))
    assert len(ways((2, 1), (0, 1), (3, 3))) == 4


def test_parts_are_the_minor_most_blocks() -> None:
    matrices, _ = ways((2,), (0,), (3, 2))
    split = LocalLayout((("d",), ("u", "t"), ()))
    assert matrices.sharding("lhs", split, 1, ("t",)) == '[{"d", "u", "t"}, {}]'
    assert matrices.sharding("lhs", split.with_dim(0, ("t",)).with_dim(1, ()), 0, ("t",)) == (
        '[{"t"}, {}]'
    )
    with pytest.raises(InputError, match="not one block"):
        matrices.sharding("lhs", split, 1, ("u",))


def test_terms_of_a_product_stay_terms() -> None:
    """Along the axes that split what is summed over; operands that are terms are not multiplied."""
    matrices, _ = ways((1,), (0,), (2, 2))
    terms = LocalLayout(((), ("t",)), ("d",))
    assert matrices.sharding("out", terms, 0, ()) == '[{}, {"t"}], unreduced={"d"}'
    with pytest.raises(InputError, match="lhs of a kernel's matmul must not be a partial sum"):
        matrices.sharding("lhs", terms, 0, ())
