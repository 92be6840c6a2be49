"""Build a rule factor by factor, each with the dimensions to which it belongs."""

from __future__ import annotations

from collections.abc import Mapping

from shardwright.ir.program import Dims, Rule

Shape = tuple[int, ...]
Shapes = tuple[Shape, ...]
KINDS = ("pass", "reduction", "need_replication", "permutation", "blocked")


class Builder:
    """A rule under construction. Tensors are numbered, operands first, then results."""

    def __init__(self, operands: tuple[Shape, ...], results: tuple[Shape, ...]) -> None:
        self.operands = len(operands)
        self.sizes: list[int] = []
        self.kinds: dict[str, list[int]] = {kind: [] for kind in KINDS}
        self.dims: list[list[list[int]]] = [[[] for _ in shape] for shape in operands + results]

    def factor(self, size: int, places: Mapping[int, int | None], kind: str = "pass") -> None:
        """Add a factor as the minor-most factor so far of its dimensions. `places`: by tensor, the
        dimension that has the factor, or None."""
        number = len(self.sizes)
        self.sizes.append(size)
        self.kinds[kind].append(number)
        for tensor, dim in places.items():
            if dim is not None:
                self.dims[tensor][dim].append(number)

    def rule(self) -> Rule:
        """Return the finished rule. Blocked factors are also among the factors that need
        replication."""
        tensors = tuple(tuple(map(tuple, dims)) for dims in self.dims)
        blocked = tuple(self.kinds["blocked"])
        return Rule(
            tuple(self.sizes),
            tensors[: self.operands],
            tensors[self.operands :],
            tuple(self.kinds["reduction"]),
            tuple(sorted((*self.kinds["need_replication"], *blocked))),
            tuple(self.kinds["permutation"]),
            blocked,
        )


def aligned(operands: tuple[Shape, ...], results: tuple[Shape, ...]) -> Rule:
    """Return the rule of tensors that correspond dimension by dimension. An operand whose shape no
    result has gets a separate factor for each of its dimensions.

    If several results differ in shape, each is aligned with the operands of its shape (an
    optimization barrier over several tensors).
    """
    build = Builder(operands, results)
    shapes = operands + results
    for shape in dict.fromkeys(results):
        same = [i for i, other in enumerate(shapes) if other == shape]
        for dim, extent in enumerate(shape):
            build.factor(extent, dict.fromkeys(same, dim))
    for tensor, shape in enumerate(shapes):
        if shape not in results:
            for dim, extent in enumerate(shape):
                build.factor(extent, {tensor: dim})
    return build.rule()


def along_one(
    dimension: int, operands: tuple[Shape, ...], results: tuple[Shape, ...], kind: str
) -> Rule:
    """Return the rule of an op that works along one dimension, whose factor is of this kind. All
    other dimensions pass through."""
    build = Builder(operands, results)
    for dim, extent in enumerate(results[0]):
        everywhere = dict.fromkeys(range(len(operands) + len(results)), dim)
        build.factor(extent, everywhere, kind=kind if dim == dimension else "pass")
    return build.rule()


def factors_of(dims: Dims) -> set[int]:
    """Return the factors of a tensor."""
    return {factor for dim in dims for factor in dim}


def widened(sizes: Shape, before: Shape, after: Shape) -> Shape:
    """Return the sizes of a part of a tensor after its extents change from `before` to `after`. A
    dimension that was taken whole still is."""
    triples = zip(sizes, before, after, strict=True)
    return tuple(new if own == old else own for own, old, new in triples)
