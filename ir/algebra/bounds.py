"""Prove facts about index expressions: bounds, order and divisors.

Bounds are inclusive and may be expressions in extents. To prove `e >= 0`, substitute `s + 1` for
every extent `s` (extents are at least 1) and check that no coefficient of the expanded polynomial
is negative. The method is sound but incomplete; it proves every fact that mixed-radix arithmetic
needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache

import sympy

from shardwright.ir.algebra.index import CeilDiv, FloorDiv, Index, Maximum, Minimum, Mod, Value

Bounds = tuple[sympy.Expr, sympy.Expr]


def bounds(expr: Value) -> Bounds | None:
    """Return the inclusive bounds `(low, high)` of an expression, or None if none are found."""
    return _bounds(sympy.sympify(expr))


@lru_cache(maxsize=1 << 14)
def _bounds(expr: sympy.Expr) -> Bounds | None:
    if isinstance(expr, sympy.Integer):
        return expr, expr
    if isinstance(expr, Index):
        return sympy.Integer(0), expr.extent - 1
    if isinstance(expr, sympy.Symbol):
        return expr, expr
    rule = _RULES.get(expr.func)
    return rule(expr) if rule else None


def _add(expr: sympy.Expr) -> Bounds | None:
    parts = [bounds(argument) for argument in expr.args]
    if any(part is None for part in parts):
        return None
    known = [part for part in parts if part is not None]
    return sympy.Add(*(low for low, _ in known)), sympy.Add(*(high for _, high in known))


def _mul(expr: sympy.Expr) -> Bounds | None:
    coefficient, rest = expr.as_coeff_Mul()
    if coefficient == 1:
        parts = [bounds(argument) for argument in sympy.Mul.make_args(rest)]
        if any(part is None or not is_nonnegative(part[0]) for part in parts):
            return None
        known = [part for part in parts if part is not None]
        return sympy.Mul(*(low for low, _ in known)), sympy.Mul(*(high for _, high in known))
    inner = bounds(rest)
    if inner is None:
        return None
    low, high = inner[0] * coefficient, inner[1] * coefficient
    return (low, high) if coefficient > 0 else (high, low)


def _divided(expr: sympy.Expr) -> Bounds | None:
    inner = bounds(expr.args[0])
    if inner is None or not _exactly(expr.args[1]):
        return None
    low, high = (_plain(expr.func, end, expr.args[1]) for end in inner)
    if low is None:
        low = sympy.Integer(0) if is_nonnegative(inner[0]) else None
    if high is None and is_nonnegative(inner[0]):
        high = _greatest_quotient(inner[1], expr) or inner[1]
    return None if low is None or high is None else (low, high)


def _greatest_quotient(high: sympy.Expr, expr: sympy.Expr) -> sympy.Expr | None:
    """Return an upper bound of the quotient `expr`, a floordiv n, whose dividend is at most `high`,
    or None if none of these rules applies:

    a floordiv n <= q - 1                    if a <= n*q - 1
    a floordiv (w*(K ceildiv P)) <= P/w - 1  if a <= K - 1 and w divides P, for then
                                             a < K <= P*(K ceildiv P)
    """
    if not isinstance(expr, FloorDiv):
        return None
    n = expr.args[1]
    q = quotient(sympy.expand(high + 1), n)
    if q is not None:
        return q - 1
    for ceiling in n.atoms(CeilDiv):
        w = quotient(n, ceiling)
        extent, parts = ceiling.args
        q = None if w is None else quotient(parts, w)
        if q is not None and is_nonnegative(extent - 1 - high):
            return q - 1
    return None


def quotient(term: sympy.Expr, n: sympy.Expr) -> sympy.Expr | None:
    """Return `term / n` for monomials if the division is exact, else None."""
    coefficient, rest = term.as_coeff_Mul()
    n_coefficient, n_rest = n.as_coeff_Mul()
    if coefficient % n_coefficient:
        return None
    powers = rest.as_powers_dict()
    for base, power in n_rest.as_powers_dict().items():
        if base == 1:
            continue
        if powers.get(base, 0) < power:
            return None
        powers[base] -= power
    factors = (base**power for base, power in powers.items() if power)
    return sympy.Mul(coefficient // n_coefficient, *factors)


def _plain(function: type, value: sympy.Expr, divisor: sympy.Expr) -> sympy.Expr | None:
    """Return the quotient `function(value, divisor)` if it simplifies to an expression without a
    division, else None."""
    quotient = function(value, divisor)
    return quotient if not quotient.has(FloorDiv, CeilDiv) or quotient == value else None


def _exactly(expr: sympy.Expr) -> bool:
    return not expr.atoms(Index)


def _ceil_divided(expr: sympy.Expr) -> Bounds | None:
    # A ceildiv of extents is at least 1, so it is treated like an extent symbol: its bounds are the
    # expression itself.
    if not expr.atoms(Index) and not expr.is_number:
        return expr, expr
    return _divided(expr)


def _modulo(expr: sympy.Expr) -> Bounds | None:
    inner = bounds(expr.args[0])
    high = expr.args[1] - 1
    if inner is not None and is_nonnegative(inner[0]) and is_nonnegative(high - inner[1]):
        high = inner[1]
    return sympy.Integer(0), high


def _minimum(expr: sympy.Expr) -> Bounds | None:
    return _extremum(expr, lambda a, b: is_nonnegative(b - a))


def _maximum(expr: sympy.Expr) -> Bounds | None:
    return _extremum(expr, lambda a, b: is_nonnegative(a - b))


def _extremum(expr: sympy.Expr, wins: Callable[[sympy.Expr, sympy.Expr], bool]) -> Bounds | None:
    first, second = (bounds(argument) for argument in expr.args)
    if first is None or second is None:
        return None
    ends: list[sympy.Expr] = []
    for a, b in zip(first, second, strict=True):
        if not wins(a, b) and not wins(b, a):
            return None
        ends.append(a if wins(a, b) else b)
    return ends[0], ends[1]


_RULES: dict[type, Callable[[sympy.Expr], Bounds | None]] = {
    sympy.Add: _add,
    sympy.Mul: _mul,
    sympy.Pow: lambda expr: (expr, expr) if _exactly(expr) else None,
    FloorDiv: _divided,
    CeilDiv: _ceil_divided,
    Mod: _modulo,
    Minimum: _minimum,
    Maximum: _maximum,
}


def is_nonnegative(expr: Value) -> bool:
    """Return whether `expr >= 0` can be proved for all values of its indices and extents."""
    return _is_nonnegative(sympy.sympify(expr))


@lru_cache(maxsize=1 << 14)
def _is_nonnegative(expr: sympy.Expr) -> bool:
    if isinstance(expr, sympy.Integer):
        return bool(expr >= 0)
    if not expr.atoms(Index):
        return _nonnegative_in_extents(expr)
    inner = bounds(sympy.expand(expr))
    if inner is not None and is_nonnegative(inner[0]):
        return True
    if isinstance(expr, Minimum):
        return all(map(is_nonnegative, expr.args))
    # Bounds treat the terms of a sum as independent. So they cannot prove that `length - min(a,
    # length)`, the rest of a chunk after a cut, is non-negative. `_lowered` relates the terms.
    if isinstance(expr, FloorDiv | CeilDiv) and is_nonnegative(expr.args[0]):
        return True
    return any(map(is_nonnegative, _lowered(expr)))


def _lowered(expr: sympy.Expr) -> Iterator[sympy.Expr]:
    """Yield expressions that are at most a given sum. In each, one operand replaces a subtracted
    minimum, which is at most either operand, or an added maximum, which is at least either."""
    terms = sympy.Add.make_args(sympy.expand(expr))
    for term in terms:
        coefficient, rest = term.as_coeff_Mul()
        if isinstance(rest, Minimum if coefficient < 0 else Maximum):
            for operand in rest.args:
                yield sympy.expand(sympy.Add(*terms) - term + coefficient * operand)


@lru_cache(maxsize=1 << 14)
def _nonnegative_in_extents(expr: sympy.Expr) -> bool:
    opaque = {atom: sympy.Dummy(positive=True) for atom in expr.atoms(CeilDiv)}
    shifted = expr.xreplace(opaque)
    if shifted.has(FloorDiv, Mod, Minimum, Maximum):
        return False
    grown = {symbol: symbol + 1 for symbol in shifted.free_symbols}
    expanded = sympy.expand(shifted.subs(grown, simultaneous=True))
    return all(term.as_coeff_Mul()[0] >= 0 for term in sympy.Add.make_args(expanded))


def is_less(a: Value, b: Value) -> bool:
    """Return whether `a < b` can be proved."""
    return is_at_most(a + 1, b)


def is_at_most(a: Value, b: Value) -> bool:
    """Return whether `a <= b` can be proved from the bounds of `a` and `b`, or of `b - a`."""
    first, second = bounds(sympy.expand(a)), bounds(sympy.expand(b))
    if first is not None and second is not None and is_nonnegative(second[0] - first[1]):
        return True
    return is_nonnegative(sympy.expand(b - a))


def divisor(expr: Value) -> int:
    """Return a proved divisor of `expr`, the largest that the rules find; 0 for the constant 0."""
    expr = sympy.sympify(expr)
    if isinstance(expr, sympy.Integer):
        return abs(int(expr))
    if isinstance(expr, sympy.Add):
        return math.gcd(*(divisor(argument) for argument in expr.args))
    if isinstance(expr, sympy.Mul):
        return math.prod(divisor(argument) for argument in expr.args)
    if isinstance(expr, Minimum | Maximum | Mod):
        return math.gcd(*(divisor(argument) for argument in expr.args))
    if isinstance(expr, FloorDiv | CeilDiv) and expr.args[1].is_Integer:
        quotient, rest = divmod(divisor(expr.args[0]), int(expr.args[1]))
        return quotient if rest == 0 else 1
    return 1
