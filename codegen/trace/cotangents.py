"""Find the gradients in a backward pass: the values that are certainly the gradient of a value of
the forward pass.

JAX's own rules say how the gradient of an op's result contributes a term to the gradient of each
operand; the gradient of a value is the sum of its terms from all uses. The search follows these
rules from the loss, whose gradient is 1, to the arguments. It accepts a gradient only if the
program computes exactly these ops on exactly these values."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from shardwright.codegen.ops.table import kind_of
from shardwright.codegen.trace.transposes import Transpose, Transposes, is_float
from shardwright.codegen.trace.value_numbers import ValueNumbers
from shardwright.ir.program import Body, Op, Value, ops_of

ROUNDS = 4
"""The most passes over the ops. Each pass may use the gradients that the previous one found."""
Use = tuple[int, int]
"""The result of an op, and the index of the operand in the op's equation."""


@dataclass
class GradientSearch:
    """The search in one body. `values`: all values; `backward`: whether a backward pass produces
    each; `found`: the number (in `numbers`) of the gradient of each value of the forward pass."""

    body: Body
    values: Sequence[Value]
    backward: Sequence[bool]
    transposes: Transposes
    numbers: ValueNumbers
    found: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.uses: defaultdict[int, list[Use]] = defaultdict(list)
        self.opaque: set[int] = set()  # values that an op without a known equation uses
        self.added: set[int] = set()  # numbers of the terms of sums of the backward pass
        self.read: set[int] = set()  # numbers of operands of ops outside the backward pass
        self.by_number: defaultdict[int, list[int]] = defaultdict(list)
        self.forward: list[int] = []
        for op in self.body.ops:
            self._read(op)
        self.results = frozenset(self.body.results)
        self.arguments = frozenset(self.body.arguments)
        self.read.update(self.numbers.number(v) for v in self.results)

    def _read(self, op: Op) -> None:
        for result in op.results:
            self.by_number[self.numbers.of[result]].append(result)
        if op.results and self.backward[op.results[0]]:
            if op.kind == "add_any":
                self.added.update(self.numbers.of[v] for v in op.operands)
            return
        self.forward.extend(op.results)
        self.read.update(self.numbers.of[v] for v in op.operands)
        operands = self.transposes.operands(op.results[0]) if len(op.results) == 1 else None
        if operands is None:
            self.opaque.update(op.operands)
            return
        for place, operand in enumerate(operands):
            if operand is not None:
                self.uses[operand].append((op.results[0], place))

    def gradients(self) -> dict[int, tuple[int, ...]]:
        """Return the values of the forward pass whose gradient each value is, by gradient."""
        self._seed()
        for _ in range(ROUNDS) if self.found else ():
            before = len(self.found)
            for value in (*reversed(self.forward), *self.body.arguments):
                if value not in self.found and is_float(self.values[value].dtype):
                    self._visit(value)
            if len(self.found) == before:
                break
        out: defaultdict[int, list[int]] = defaultdict(list)
        for value, number in self.found.items():
            if self._is_computed_again(value):
                continue
            for gradient in self.by_number[number]:
                if self.backward[gradient] and self._is_alike(gradient, value):
                    out[gradient].append(value)
        return {gradient: tuple(sorted(of)) for gradient, of in out.items()}

    def _is_computed_again(self, value: int) -> bool:
        """Return whether another op computes the same value for the loss. A module computes it only
        once, so there its gradient is the sum of both gradients."""
        own = self.by_number[self.numbers.of[value]]
        alike = (v for v in own if v != value and not self.backward[v])
        return any(map(self._has_gradient, alike))

    def _is_alike(self, one: int, other: int) -> bool:
        a, b = self.values[one], self.values[other]
        return (a.shape, a.dtype) == (b.shape, b.dtype)

    def _seed(self) -> None:
        """Find the losses: scalars that nothing uses later and whose gradient is 1."""
        for value in self.forward:
            of = self.values[value]
            if of.shape or not is_float(of.dtype) or self.uses[value] or value in self.opaque:
                continue
            one = self.numbers.constant(1.0, of.dtype)
            if one is not None and any(t is not None for t in self._terms(value, one)):
                self.found[value] = one

    def _visit(self, value: int) -> None:
        number = self._from_uses(value)
        if number is None:
            number = self._from_its_op(value)
        if number is not None:
            self.found[value] = number
            self._pass_on(value, number)

    def _pass_on(self, value: int, number: int) -> None:
        """Record, for a value with a single use, the gradient of that use's result, if the use
        passes its gradient on unchanged, as a sum does."""
        if len(self.uses[value]) != 1 or value in self.opaque or value in self.results:
            return
        ((result, place),) = self.uses[value]
        if result not in self.found and self._terms(result, number)[place] == number:
            self.found[result] = number
            self._pass_on(result, number)

    def _from_uses(self, value: int) -> int | None:
        """Return the number of the sum of a value's terms, or None if it is uncertain."""
        terms, is_all = [], value not in self.opaque
        for result, place in self.uses[value]:
            if not self._has_gradient(result):
                continue
            known = self.found.get(result)
            term = None if known is None else self._terms(result, known)[place]
            if term is None:
                is_all = False
            else:
                terms.append(term)
        total = self._sum(terms)
        if is_all:
            return total
        # An argument may have no gradient: then a sum of some of its terms is that of another
        # value, and only the backward pass reads it.
        is_read = value not in self.arguments or total in self.read
        return total if is_read and total not in self.added else None

    def _has_gradient(self, value: int) -> bool:
        """Return whether a value may affect the loss. A value that only the backward pass uses does
        not, unless it is the loss or a result of the program."""
        of = self.values[value]
        if not is_float(of.dtype):
            return False
        if value in self.found or value in self.opaque or value in self.results or not of.shape:
            return True
        return any(self._has_gradient(result) for result, _ in self.uses[value])

    def _sum(self, terms: Sequence[int]) -> int | None:
        """Return the number of the sum of all terms, which may be added in any order, or None if
        the program does not compute it."""
        left = list(terms)
        while len(left) > 1:
            pairs = itertools.combinations(reversed(range(len(left))), 2)
            for i, j in pairs:
                if (number := self.numbers.sum_of(left[i], left[j])) is not None:
                    left = [each for at, each in enumerate(left) if at not in (i, j)]
                    left.append(number)
                    break
            else:
                return None
        return left[0] if left else None

    def _terms(self, result: int, number: int) -> tuple[int | None, ...]:
        """Return the number of each operand's term for the op that produces `result`, whose
        gradient has number `number`, or None for a term that the program does not compute."""
        rule = self.transposes.of(result)
        operands = self.transposes.operands(result) or ()
        if rule is None:
            return (None,) * len(operands)
        given = [None if v is None else self.numbers.of[v] for v in operands]
        return self._evaluated(rule, number, given)

    def _evaluated(
        self, rule: Transpose, number: int | None, given: Sequence[int | None]
    ) -> tuple[int | None, ...]:
        env = self._env(rule, given)
        env[rule.gradient] = number
        self.numbers.follow(rule.ops, rule.values, env)
        return tuple(None if term is None else env.get(term) for term in rule.terms)

    def _env(self, rule: Transpose, given: Sequence[int | None]) -> dict[int, int | None]:
        known = (each for each in given if each is not None)
        return dict(zip(rule.operands, known, strict=True))

    def _from_its_op(self, value: int) -> int | None:
        """Return the number of the gradient of a contraction's result: the only value of the
        backward pass from which the program computes the terms of both operands."""
        rule, operands = self.transposes.of(value), self.transposes.operands(value)
        if rule is None or operands is None or not kind_of(rule.kind).is_bilinear:
            return None
        given = [None if v is None else self.numbers.of[v] for v in operands]
        fits = {
            number
            for number in self._candidates(rule, given)
            if self._is_of_backward(number, value)
            and all(term is not None for term in self._evaluated(rule, number, given))
        }
        return fits.pop() if len(fits) == 1 else None

    def _candidates(self, rule: Transpose, given: Sequence[int | None]) -> Iterator[int]:
        env = self._env(rule, given)
        for op in rule.ops:
            if rule.gradient in op.operands and len(op.operands) == 2:
                (other,) = (v for v in op.operands if v != rule.gradient)
                if (number := env.get(other)) is not None:
                    yield from self.numbers.beside(op.kind, number)
                return

    def _is_of_backward(self, number: int, value: int) -> bool:
        return any(self.backward[v] and self._is_alike(v, value) for v in self.by_number[number])


def cotangents(
    body: Body, values: Sequence[Value], backward: Sequence[bool], transposes: Transposes
) -> Mapping[str, tuple[str, ...]]:
    """Return, for the name of each gradient, the names of the values whose gradient it is.
    `values`: all values of the body, including results of dead ops, because a dead op may be a use
    too."""
    if not any(backward):
        return {}
    numbers = ValueNumbers(values)
    numbers.read([*ops_of(body)])
    search = GradientSearch(body, values, backward, transposes, numbers)
    return {
        values[gradient].name: tuple(values[each].name for each in of)
        for gradient, of in search.gradients().items()
    }
