"""The layouts in which an op can run on shards: pieces of axes split each factor of its rule.

A factor is a dimension that several tensors of the op share. If all tensors are split equally along
their factors, the same op computes the shards of the result. If the op sums over a split factor,
each device computes a partial result.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat

from shardwright.codegen.ops.build import Builder
from shardwright.codegen.ops.collectives import COLLECTIVES
from shardwright.codegen.ops.forms.form import FormMove, OpTensors, SplitOp
from shardwright.codegen.ops.layout import LocalLayout, Names, fitting
from shardwright.codegen.ops.table import form_of, kind_of
from shardwright.codegen.partition.local.axes import CutAxes
from shardwright.codegen.partition.local.collectives import own_moves
from shardwright.codegen.partition.local.ports import PORT
from shardwright.codegen.partition.local.steps import item_bytes
from shardwright.codegen.propagate.rules import rule_of
from shardwright.ir.program import Dims, Op, Rule, Value


@dataclass(frozen=True)
class FactorAxes:
    """The pieces of axes that split each factor of an op. Along the pieces `partial`, the operands
    with the indices `carriers` and the results are partial."""

    factors: tuple[Names, ...]
    partial: Names = ()
    carriers: tuple[int, ...] = ()


@dataclass(frozen=True)
class OpLayouts:
    """The layouts of an op's operands and results when it runs on shards."""

    operands: tuple[LocalLayout, ...]
    results: tuple[LocalLayout, ...]


class Splits:
    """The ways to split one op."""

    def __init__(self, op: Op, values: Sequence[Value], axes: CutAxes) -> None:
        self.op, self.axes, self.sizes = op, axes, axes.sizes
        self.kind = kind_of(op.kind)
        tensors = tuple(values[v] for v in (*op.operands, *op.results))
        self.shapes = tuple(value.shape for value in tensors)
        self.items = tuple(item_bytes(value.dtype) for value in tensors)
        rule = rule_of(op, values) or _of_results(op, values)
        self.tensors = OpTensors(op, rule, tensors, tuple(self.sizes.values()))
        self.form = form_of(self.tensors)
        self.rule = rule if self.form is None else self.form.rule
        self.fixed, self.barred = _manual(op, axes)
        self.free = frozenset((*_free(self.tensors, self.rule), *self._of_form()))
        self._split: dict[tuple[tuple[int, LocalLayout], ...], FactorAxes] = {}
        self._layouts: dict[FactorAxes, OpLayouts] = {}

    def _of_form(self) -> Iterator[int]:
        """Yield the factors that can be split only if the op runs in its local form."""
        for factor in () if self.form is None else self.form.factors:
            if self.rule.sizes[factor] > 1:
                yield factor

    @property
    def whole(self) -> FactorAxes:
        """The split with the fewest pieces: only those that the op requires."""
        return FactorAxes(tuple(map(self._fixed, range(len(self.rule.sizes)))))

    def _fixed(self, factor: int) -> Names:
        return self.fixed.get(factor, ())

    def along(self, tensors: Iterable[tuple[int, LocalLayout]]) -> FactorAxes:
        """Return the split that the layouts of tensors, given with their indices, suggest. If
        layouts disagree, the first one takes precedence."""
        key = tuple(tensors)
        found = self._split.get(key)
        if found is None:
            found = self._split[key] = self._along(key)
        return found

    def _along(self, tensors: tuple[tuple[int, LocalLayout], ...]) -> FactorAxes:
        factors = list(map(self._fixed, range(len(self.rule.sizes))))
        taken: set[str] = set(self.barred)
        for tensor, layout in tensors:
            for factor, names in self._projected(tensor, layout):
                if not factors[factor] and taken.isdisjoint(names):
                    factors[factor] = names
                    taken.update(names)
        return FactorAxes(self._trimmed(factors))

    def without(self, split: FactorAxes, names: Names) -> FactorAxes:
        factors = [tuple(n for n in own if n not in names) for own in split.factors]
        return FactorAxes(self._trimmed(factors))

    def unreduced(self, split: FactorAxes) -> FactorAxes:
        """Return a split without the pieces that make the results partial."""
        names = tuple(name for factor in self.reducing for name in split.factors[factor])
        return self.without(split, names) if names else split

    def _projected(self, tensor: int, layout: LocalLayout) -> Iterator[tuple[int, Names]]:
        for dim, names in zip(self.rule.tensors[tensor], layout.dims, strict=True):
            left = names
            for factor in dim:
                own = fitting(left, self.rule.sizes[factor], self.sizes)
                left = left[len(own) :]
                if own and factor in self.free:
                    yield factor, own
                if self.axes.parts_of(own) != self.rule.sizes[factor]:
                    break

    def _trimmed(self, factors: Sequence[Names]) -> tuple[Names, ...]:
        """Remove pieces that keep a shard from being a contiguous block, and return the pieces of
        each factor. A factor of a dimension may be split only if all earlier factors of that
        dimension are fully split."""
        out = [
            self._allowed(factor, fitting(names, size, self.sizes))
            if factor in self.free
            else self._fixed(factor)
            for factor, (names, size) in enumerate(zip(factors, self.rule.sizes, strict=True))
        ]
        while True:
            wrong = [factor for dim in self._dims() for factor in self._hanging(dim, out)]
            if not wrong:
                return tuple(out)
            for factor in wrong:
                out[factor] = ()

    def _allowed(self, factor: int, names: Names) -> Names:
        """Return the leading pieces along a factor, as many as the op's local form supports."""
        while names and self.form and not self.form.takes(factor, self.axes.parts_of(names)):
            names = names[:-1]
        return names

    def _dims(self) -> Iterator[tuple[int, ...]]:
        return itertools.chain.from_iterable(self.rule.tensors)

    def _hanging(self, dim: tuple[int, ...], factors: Sequence[Names]) -> Iterator[int]:
        """Yield the factors that are split although an earlier factor of their dimension is not
        fully split."""
        full = True
        for factor in dim:
            if factors[factor] and not full:
                yield factor
            full = full and self.axes.parts_of(factors[factor]) == self.rule.sizes[factor]

    def layouts(self, split: FactorAxes) -> OpLayouts:
        """Return the layouts of operands and results for a split."""
        found = self._layouts.get(split)
        if found is None:
            found = self._layouts[split] = self._laid(split)
        return found

    def _laid(self, split: FactorAxes) -> OpLayouts:
        reduced = {name for f in self.reducing for name in split.factors[f]}
        terms = self.axes.ordered({*reduced, *split.partial})
        operator = self.kind.operator or "sum"
        operands = []
        for place, dims in enumerate(self.rule.operands):
            own = split.partial if place in split.carriers else ()
            is_table = place == 0 and self.kind.indexed  # the tensor to which rows are added
            if self.kind.operator and is_table:
                own = terms
            operands.append(LocalLayout(_joined(dims, split.factors), own))
        results = (
            LocalLayout(_joined(dims, split.factors), terms, operator if terms else "sum")
            for dims in self.rule.results
        )
        return OpLayouts(tuple(operands), tuple(results))

    @property
    def reducing(self) -> tuple[int, ...]:
        """The factors that make the results partial if they are split."""
        return self.rule.reduction

    def moves(self, split: FactorAxes) -> tuple[FormMove, ...]:
        """Return the communications inside the op if it is split in this way."""
        if self.op.kind not in COLLECTIVES and not self.is_formed(split):
            return ()
        layouts = self.layouts(split)
        given = (*layouts.operands, *layouts.results)
        own = SplitOp(self.tensors, given, self.sizes, self.items)
        if self.form is None:
            return tuple(own_moves(own, self.axes))
        return tuple(self.form.moves(own))

    def is_formed(self, split: FactorAxes) -> bool:
        """Return whether the op runs in its local form if it is split in this way."""
        return self.form is not None and any(split.factors[f] for f in self.form.factors)

    def price(self, split: FactorAxes) -> float:
        """Return the cost of an op in bytes: a device's computation, and the bytes that it receives
        inside the op."""
        pace, moves = self.axes.rates.pace, filter(lambda move: move.received, self.moves(split))
        if pace is None:
            return self.work(split) + sum(move.received for move in moves)
        return self.work(split) + sum(pace.of(m.op, m.axes, m.received) for m in moves)

    def work(self, split: FactorAxes) -> float:
        """Return the cost of a device's computation, as the bytes that it could receive in the same
        time."""
        return self.whole_work / self.axes.parts_of(n for names in split.factors for n in names)

    @functools.cached_property
    def whole_work(self) -> float:
        """The cost of the computation of all devices together: of the operations of a matmul or
        convolution, or of the bytes that the op reads and writes, whichever is greater."""
        rates = self.axes.rates
        touched = sum(math.prod(shape) * item for shape, item in self._touched())
        count = self.kind.flops
        flops = 0 if count is None else count(self.op, self.shapes, self.rule)
        dtype = self.tensors.values[0].dtype if self.tensors.values else "f32"
        return max(flops / rates.operations(dtype), touched / rates.touched)

    def _touched(self) -> Iterator[tuple[tuple[int, ...], int]]:
        """Yield the shape and the element size in bytes of each tensor that the op reads or writes.
        Yield none for fused ops and, for a port, only the tensors that a loop slices or stacks.
        Without a topology, every element counts as four bytes."""
        items = self.items if self.axes.rates.topology else repeat(4)
        sized = [*zip(self.shapes, items, strict=False)]
        count = len(self.op.operands)
        if self.op.kind == PORT:
            stacked = str(self.op.param("stacked"))
            yield from {"takes": sized[:count], "gives": sized[count:]}.get(stacked, ())
        elif not self.kind.is_fused:
            yield from sized


def splits_of(op: Op, values: Sequence[Value], axes: CutAxes) -> Splits:
    """Return the possible splits of an op. Equal ops share one object."""
    tensors = (values[v] for v in (*op.operands, *op.results))
    key = (op.kind, op.params, op.rule, tuple((v.shape, v.dtype) for v in tensors))
    found: Splits | None = axes.known.get(key)
    if found is None:
        found = axes.known[key] = Splits(op, values, axes)
    return found


def candidates(splits: Splits, layouts: Sequence[LocalLayout]) -> tuple[FactorAxes, ...]:
    """Return the splits that the layouts of an op's tensors suggest, with each tensor in turn
    taking precedence, and the split with the fewest pieces. A slice or a pad may also take the
    layout of one tensor alone: to gather its operand may cost less than to sum what every device
    has of its result."""
    tensors = list(enumerate(layouts))
    found = [splits.along((first, *tensors)) for first in (*reversed(tensors),)]
    is_cut = splits.op.kind in ("slice", "pad")
    alone = [splits.along((each,)) for each in reversed(tensors)] if is_cut else []
    return tuple(dict.fromkeys((*found, splits.whole, *alone)))


def _manual(op: Op, axes: CutAxes) -> tuple[dict[int, Names], frozenset[str]]:
    """Return the pieces that must split each factor of a port, by factor, and the pieces that may
    split no other factor. Both are empty unless the port belongs to a manual computation."""
    if op.kind != PORT or op.param("of") != "manual":
        return {}, frozenset()
    given = op.param("manual")
    listed = given if isinstance(given, tuple) else ()
    fixed = {factor: axes.whole_axes(names) for factor, names in enumerate(listed) if names}
    return fixed, frozenset(axes.whole_axes(op.param("axes")))


def _joined(dims: Dims, factors: Sequence[Names]) -> tuple[Names, ...]:
    return tuple(tuple(name for factor in dim for name in factors[factor]) for dim in dims)


def _of_results(op: Op, values: Sequence[Value]) -> Rule:
    shapes = [tuple(values[v].shape for v in side) for side in (op.operands, op.results)]
    build = Builder(*shapes)
    for tensor, shape in enumerate(itertools.chain(*shapes)):
        for dim, extent in enumerate(shape):
            build.factor(extent, {tensor: dim})
    return build.rule()


def _free(tensors: OpTensors, rule: Rule) -> Iterator[int]:
    """Yield the factors along which the op can run on shards without a local form."""
    op = tensors.op
    held = {*rule.need_replication, *rule.permutation, *rule.blocked}
    kind = kind_of(op.kind)
    if not kind.operator or (kind.operator == "sum" and not tensors.is_added):
        held.update(rule.reduction)
    if kind.splits == "freely":
        held.clear()
    elif op.rule is None and kind.splits == "by form":
        return
    held.update(() if kind.held is None else kind.held(op, rule))
    for factor, size in enumerate(rule.sizes):
        if factor not in held and size > 1:
            yield factor
