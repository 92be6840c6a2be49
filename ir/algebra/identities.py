"""The identities of the index algebra in one table, `IDENTITIES`.

An identity is an equality that is true for all integers that meet its condition; divisors are at
least 1. `test_identities.py` checks each identity by brute force. The `apply` of an identity
returns its right side, the simpler expression, or None if the identity does not apply.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import sympy

from shardwright.ir.algebra.bounds import is_at_most, is_less, is_nonnegative, quotient
from shardwright.ir.algebra.index import CONCRETE, CeilDiv, FloorDiv, Maximum, Minimum, Mod, Value

Rewrite = Callable[[sympy.Expr, sympy.Expr], sympy.Expr | None]


@dataclass(frozen=True)
class Identity:
    """An equality that simplifies a function of the algebra, from left to right.

    `apply`: returns the right side, given the two arguments of the function, or None.
    """

    function: type[sympy.Function]
    name: str
    statement: str
    apply: Rewrite


def rewrite(
    function: type[sympy.Function], first: sympy.Expr, second: sympy.Expr
) -> sympy.Expr | None:
    """Return the right side of the first identity that applies to `function(first, second)`, or
    None if none applies. Compute the value if both arguments are integers."""
    if first.is_Integer and second.is_Integer:
        return sympy.Integer(CONCRETE[function](int(first), int(second)))
    for identity in IDENTITIES:
        if identity.function is function:
            result = identity.apply(first, second)
            if result is not None:
                return result
    return None


def _split(a: sympy.Expr, n: sympy.Expr) -> tuple[sympy.Expr, sympy.Expr]:
    """Return (q, r) with a = n*q + r, where n*q is the sum of the terms of `a` that n divides."""
    q: list[sympy.Expr] = []
    r: list[sympy.Expr] = []
    for term in sympy.Add.make_args(sympy.expand(a)):
        divided = quotient(term, n)
        (r if divided is None else q).append(term if divided is None else divided)
    return sympy.Add(*q), sympy.Add(*r)


def _common_factor(
    a: sympy.Expr, n: sympy.Expr
) -> tuple[sympy.Expr, sympy.Expr, sympy.Expr, sympy.Expr] | None:
    """Return (q, r, m, g) with a = g*q + r, n = g*m and 0 <= r < g, for the first candidate g for
    which this is proved; None if there is none."""
    for g in _candidate_factors(a, n):
        m = quotient(n, g)
        if m is None or g == 1:
            continue
        q, r = _split(a, g)
        if q != 0 and is_nonnegative(r) and is_less(r, g):
            return q, r, m, g
    return None


def _candidate_factors(a: sympy.Expr, n: sympy.Expr) -> tuple[sympy.Expr, ...]:
    factors: list[sympy.Expr] = []
    for term in sympy.Add.make_args(sympy.expand(a)):
        coefficient, rest = term.as_coeff_Mul()
        common = sympy.gcd(coefficient, n.as_coeff_Mul()[0])
        shared = [f for f in sympy.Mul.make_args(rest) if quotient(n, f) is not None]
        factors += [common * sympy.Mul(*shared), common]
    return tuple(dict.fromkeys(factors))


def _quotient_is_zero(a: sympy.Expr, n: sympy.Expr) -> sympy.Expr | None:
    return sympy.Integer(0) if is_nonnegative(a) and is_less(a, n) else None


def _quotient_of_multiple(a: sympy.Expr, n: sympy.Expr) -> sympy.Expr | None:
    q, r = _split(a, n)
    return q + FloorDiv(r, n) if q != 0 else None


def _quotient_of_quotient(a: sympy.Expr, n: sympy.Expr) -> sympy.Expr | None:
    return FloorDiv(a.args[0], a.args[1] * n) if isinstance(a, FloorDiv) else None


def _quotient_of_remainder(a: sympy.Expr, n: sympy.Expr) -> sympy.Expr | None:
    k = quotient(a.args[1], n) if isinstance(a, Mod) else None
    return None if k is None else Mod(FloorDiv(a.args[0], n), k)


def _quotient_common_factor(a: sympy.Expr, n: sympy.Expr) -> sympy.Expr | None:
    found = _common_factor(a, n)
    return None if found is None else FloorDiv(found[0], found[2])


def _remainder_is_all(a: sympy.Expr, n: sympy.Expr) -> sympy.Expr | None:
    return a if is_nonnegative(a) and is_less(a, n) else None


def _remainder_of_multiple(a: sympy.Expr, n: sympy.Expr) -> sympy.Expr | None:
    q, r = _split(a, n)
    return Mod(r, n) if q != 0 else None


def _remainder_of_remainder(a: sympy.Expr, n: sympy.Expr) -> sympy.Expr | None:
    k = quotient(a.args[1], n) if isinstance(a, Mod) else None
    return None if k is None else Mod(a.args[0], n)


def _remainder_common_factor(a: sympy.Expr, n: sympy.Expr) -> sympy.Expr | None:
    found = _common_factor(a, n)
    return None if found is None else found[3] * Mod(found[0], found[2]) + found[1]


def _ceiling_of_multiple(a: sympy.Expr, n: sympy.Expr) -> sympy.Expr | None:
    q, r = _split(a, n)
    return q + CeilDiv(r, n) if q != 0 else None


def _ceiling_is_one(a: sympy.Expr, n: sympy.Expr) -> sympy.Expr | None:
    return sympy.Integer(1) if is_less(0, a) and is_at_most(a, n) else None


def _first_is_least(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
    if is_at_most(a, b):
        return a
    return b if is_at_most(b, a) else None


def _first_is_greatest(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
    if is_at_most(b, a):
        return a
    return b if is_at_most(a, b) else None


def _clipped_alike(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
    if not (isinstance(a, Minimum) and isinstance(b, Minimum) and a.args[1] == b.args[1]):
        return None
    return Minimum(Minimum(a.args[0], b.args[0]), a.args[1])


def _clipped_further(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
    if not isinstance(a, Minimum) or not is_at_most(b, a.args[1]):
        return None
    return Minimum(a.args[0], b)


IDENTITIES: tuple[Identity, ...] = (
    Identity(FloorDiv, "by one", "a floordiv 1 = a", lambda a, n: a if n == 1 else None),
    Identity(FloorDiv, "small", "a floordiv n = 0 if 0 <= a < n", _quotient_is_zero),
    Identity(
        FloorDiv, "multiple", "(n*q + r) floordiv n = q + r floordiv n", _quotient_of_multiple
    ),
    Identity(
        FloorDiv, "twice", "(a floordiv m) floordiv n = a floordiv (m*n)", _quotient_of_quotient
    ),
    Identity(
        FloorDiv,
        "digit",
        "(a mod (n*k)) floordiv n = (a floordiv n) mod k",
        _quotient_of_remainder,
    ),
    Identity(
        FloorDiv,
        "common factor",
        "(g*q + r) floordiv (g*m) = q floordiv m if 0 <= r < g",
        _quotient_common_factor,
    ),
    Identity(Mod, "by one", "a mod 1 = 0", lambda a, n: sympy.Integer(0) if n == 1 else None),
    Identity(Mod, "small", "a mod n = a if 0 <= a < n", _remainder_is_all),
    Identity(Mod, "multiple", "(n*q + r) mod n = r mod n", _remainder_of_multiple),
    Identity(Mod, "twice", "(a mod (n*k)) mod n = a mod n", _remainder_of_remainder),
    Identity(
        Mod,
        "common factor",
        "(g*q + r) mod (g*m) = g*(q mod m) + r if 0 <= r < g",
        _remainder_common_factor,
    ),
    Identity(CeilDiv, "by one", "a ceildiv 1 = a", lambda a, n: a if n == 1 else None),
    Identity(CeilDiv, "multiple", "(n*q + r) ceildiv n = q + r ceildiv n", _ceiling_of_multiple),
    Identity(CeilDiv, "small", "a ceildiv n = 1 if 0 < a <= n", _ceiling_is_one),
    Identity(Minimum, "ordered", "min(a, b) = a if a <= b", _first_is_least),
    Identity(
        Minimum, "clipped further", "min(min(a, c), d) = min(a, d) if d <= c", _clipped_further
    ),
    Identity(Minimum, "clipped", "min(min(a, c), min(b, c)) = min(min(a, b), c)", _clipped_alike),
    Identity(Maximum, "ordered", "max(a, b) = a if a >= b", _first_is_greatest),
)


def simplify(expr: Value) -> sympy.Expr:
    """Expand an expression and recombine matching quotients and remainders:

    `c*k*(a floordiv (s*k)) + c*((a floordiv s) mod k) = c*(a floordiv s)`
    """
    expr = sympy.sympify(expr)
    if not expr.args:
        return expr
    rebuilt = expr.func(*(simplify(argument) for argument in expr.args))
    expanded = sympy.expand(rebuilt)
    recombined = _recombine(expanded)
    return simplify(recombined) if recombined != expanded else expanded


def _recombine(expr: sympy.Expr) -> sympy.Expr:
    terms = sympy.Add.make_args(expr)
    for low in terms:
        for remainder in low.atoms(Mod):
            c = quotient(low, remainder)
            if c is None:
                continue
            inner, k = remainder.args
            high = c * k * FloorDiv(inner, k)
            if high != 0 and high in terms:
                return sympy.Add(*(t for t in terms if t not in (low, high)), c * inner)
    return expr


def equal(a: Value, b: Value) -> bool:
    """Return whether the identities prove that `a` equals `b`."""
    return bool(simplify(sympy.sympify(a) - sympy.sympify(b)) == 0)
