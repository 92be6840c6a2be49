"""Exact integer index algebra: division, remainder and order over bounded symbols.

An *index* is a symbol with a half-open range `[0, extent)`. An *extent* is a positive integer
symbol, the size of a tensor or mesh dimension. sympy's own `floor` is never used, because it splits
`floor((a + 3*b)/4)` into fractions and prints floating-point code.

The functions `floor_div`, `ceil_div`, `mod`, `minimum` and `maximum` take Python integers, numpy
arrays and sympy expressions. A formula is therefore written only once, and can be computed, proved
and printed. Divisors must be positive. `ir/algebra/identities.py` has the identities.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias, TypeVar

import numpy as np
import sympy

from shardwright.ir.arrays import Integers as Integers

Value: TypeAlias = Any
# The type of the operands and the result of a function: integers, or arrays of integers.
# Expressions have type `Value`.
Number = TypeVar("Number", bound=int | Integers)


class Index(sympy.Symbol):  # type: ignore[misc]
    """A symbol with 0 <= value < `extent`; `extent` is an integer or an expression in extents."""

    __slots__ = ("extent",)

    def __new__(cls, name: str, extent: Value) -> Index:
        self: Index = sympy.Symbol.__xnew__(cls, name, integer=True, nonnegative=True)
        self.extent = sympy.sympify(extent)
        return self

    def __getnewargs_ex__(self) -> tuple[tuple[str, Value], dict[str, Any]]:
        return (self.name, self.extent), {}

    def _hashable_content(self) -> tuple[Any, ...]:
        return (*super()._hashable_content(), self.extent)


def extent_symbol(name: str) -> sympy.Symbol:
    """Return a symbol for a positive integer, the size of a tensor or mesh dimension."""
    return sympy.Symbol(name, integer=True, positive=True)


Rewrite = Callable[[type[sympy.Function], sympy.Expr, sympy.Expr], sympy.Expr | None]
"""Takes a function of the algebra and its two arguments. Returns a simpler expression, or None
if there is none."""


def _unchanged(*_: object) -> None:
    """Return None: without registered identities, nothing is simplified."""


_rewrite: Rewrite = _unchanged


def simplify_by(rewrite: Rewrite) -> None:
    """Register `rewrite` to simplify every expression that is created from now on.

    The package calls this with its table of identities when it is imported.
    """
    global _rewrite
    _rewrite = rewrite


class _IndexFunction(sympy.Function):  # type: ignore[misc]
    """A binary integer function. sympy calls `eval` for each new expression, which applies the
    registered identities."""

    is_integer = True

    @classmethod
    def eval(cls, first: sympy.Expr, second: sympy.Expr) -> sympy.Expr | None:
        return _rewrite(cls, first, second)


class FloorDiv(_IndexFunction):
    """`floor(a / n)` for n >= 1."""


class CeilDiv(_IndexFunction):
    """`ceil(a / n)` for n >= 1, written `a ceildiv n`."""


class Mod(_IndexFunction):
    """`a - n * floor(a / n)` for n >= 1, so that 0 <= Mod(a, n) < n."""


class Minimum(_IndexFunction):
    """The smaller of two integers."""


class Maximum(_IndexFunction):
    """The larger of two integers."""


def _applied(
    function: type[sympy.Function], concrete: Callable[[Value, Value], Value], a: Value, b: Value
) -> Value:
    symbolic = isinstance(a, sympy.Basic) or isinstance(b, sympy.Basic)
    return function(a, b) if symbolic else concrete(a, b)


def floor_div(a: Number, n: Number) -> Number:
    """Return `floor(a / n)`, for n >= 1."""
    quotient: Number = _applied(FloorDiv, operator.floordiv, a, n)
    return quotient


def ceil_div(a: Number, n: Number) -> Number:
    """Return `ceil(a / n)`, for n >= 1."""
    quotient: Number = _applied(CeilDiv, lambda a, n: -(-a // n), a, n)
    return quotient


def mod(a: Number, n: Number) -> Number:
    """Return the remainder of `a` modulo `n`, in `[0, n)`, for n >= 1."""
    remainder: Number = _applied(Mod, operator.mod, a, n)
    return remainder


def minimum(a: Number, b: Number) -> Number:
    """Return the smaller operand, elementwise for arrays."""
    smaller: Number = _applied(Minimum, _smaller, a, b)
    return smaller


def maximum(a: Number, b: Number) -> Number:
    """Return the larger operand, elementwise for arrays."""
    larger: Number = _applied(Maximum, _larger, a, b)
    return larger


def _smaller(a: Value, b: Value) -> Value:
    return np.minimum(a, b) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else min(a, b)


def _larger(a: Value, b: Value) -> Value:
    return np.maximum(a, b) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else max(a, b)


def at_least(a: Value, b: Value) -> Value:
    """Return 1 where a >= b, else 0: `min(max(a - b + 1, 0), 1)`."""
    return minimum(maximum(a - b + 1, 0), 1)


def pick(table: Sequence[int], index: Value) -> Value:
    """Return `table[index]`; the index must be in range.

    For an expression, the result is the sum of the differences between successive entries:
    `t_0 + sum_j (t_j - t_(j-1)) * [index >= j]`.
    """
    if isinstance(index, sympy.Basic):
        steps = ((b - a) * at_least(index, j) for j, (a, b) in enumerate(pairwise(table), 1))
        return sum(steps, sympy.Integer(table[0]))
    found = np.asarray(table, dtype=np.int64)[index]
    return found if isinstance(index, np.ndarray) else int(found)


def count_at_most(bounds: Sequence[int], value: Value) -> Value:
    """Count the entries of the ascending `bounds` that are at most `value`:
    `sum_j [value >= b_j]`."""
    if isinstance(value, sympy.Basic):
        return sum((at_least(value, bound) for bound in bounds), sympy.Integer(0))
    found = np.searchsorted(np.asarray(bounds, dtype=np.int64), value, side="right")
    return found if isinstance(value, np.ndarray) else int(found)


def weights(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return, for each size, the product of the sizes after it."""
    return tuple(math.prod(sizes[i + 1 :]) for i in range(len(sizes)))


CONCRETE: dict[type[sympy.Function], Callable[[Value, Value], Value]] = {
    FloorDiv: floor_div,
    CeilDiv: ceil_div,
    Mod: mod,
    Minimum: minimum,
    Maximum: maximum,
}


def evaluate(expr: Value, values: Mapping[sympy.Symbol, Value]) -> Value:
    """Return the value of `expr` with every symbol replaced by an integer or an integer array.

    Raises KeyError for a symbol without a value, and TypeError for a function of sympy that is not
    in the algebra.
    """
    if not isinstance(expr, sympy.Basic):
        return expr
    if isinstance(expr, sympy.Integer):
        return int(expr)
    if isinstance(expr, sympy.Symbol):
        return values[expr]
    arguments = [evaluate(argument, values) for argument in expr.args]
    if isinstance(expr, _IndexFunction):
        return CONCRETE[type(expr)](*arguments)
    if isinstance(expr, sympy.Add):
        return sum(arguments[1:], arguments[0])
    if isinstance(expr, sympy.Mul):
        product = arguments[0]
        for argument in arguments[1:]:
            product = product * argument
        return product
    if isinstance(expr, sympy.Pow):
        return arguments[0] ** arguments[1]
    raise TypeError(f"not an index expression: {expr!r}")
