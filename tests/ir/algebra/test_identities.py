"""The identity table: of each identity its statement, printed form, bounds, and brute force."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping

import pytest
import sympy

from shardwright.codegen.show.notation import text
from shardwright.ir.algebra.bounds import bounds, divisor, is_less, is_nonnegative
from shardwright.ir.algebra.identities import IDENTITIES, Identity, equal, simplify
from shardwright.ir.algebra.index import (
    CONCRETE,
    CeilDiv,
    FloorDiv,
    Index,
    Maximum,
    Minimum,
    Mod,
    Value,
    evaluate,
    extent_symbol,
)

K, L, M, N = map(extent_symbol, "KLMN")
m, n = Index("m", M), Index("n", N)
a, b = Index("a", 30), Index("b", 12)
big = Index("i", K)

# Function and name of an identity: operands to which it applies, the printed result, its bounds.
CASES: dict[tuple[type, str], tuple[Value, Value, str, tuple[str, str]]] = {
    (FloorDiv, "by one"): (m, 1, "m", ("0", "M - 1")),
    (FloorDiv, "small"): (m, M, "0", ("0", "0")),
    (FloorDiv, "multiple"): (a * 6 + b, 3, "a * 2 + (b floordiv 3)", ("0", "61")),
    (FloorDiv, "twice"): (FloorDiv(big, M), N, "i floordiv (M * N)", ("0", "K - 1")),
    (FloorDiv, "digit"): (Mod(a, 12), 3, "(a floordiv 3) % 4", ("0", "3")),
    (FloorDiv, "common factor"): (m * N + n, N * 3, "m floordiv 3", ("0", "M - 1")),
    (Mod, "by one"): (m, 1, "0", ("0", "0")),
    (Mod, "small"): (n, N, "n", ("0", "N - 1")),
    (Mod, "multiple"): (a * 6 + b, 3, "b % 3", ("0", "2")),
    (Mod, "twice"): (Mod(a, 12), 3, "a % 3", ("0", "2")),
    (Mod, "common factor"): (m * N + n, N * 3, "(m % 3) * N + n", ("0", "N * 3 - 1")),
    (CeilDiv, "by one"): (K, 1, "K", ("K", "K")),
    (CeilDiv, "multiple"): (K * 2 + b, 2, "(b ceildiv 2) + K", ("K", "K + 6")),
    (CeilDiv, "small"): (n + 1, N, "1", ("1", "1")),
    (Minimum, "ordered"): (m, M, "m", ("0", "M - 1")),
    (Minimum, "clipped further"): (Minimum(a, 20), 12, "min(a, 12)", ("0", "12")),
    (Minimum, "clipped"): (
        Minimum(a, 20),
        Minimum(b * 3, 20),
        "min(a, b * 3, 20)",
        ("0", "20"),
    ),
    (Maximum, "ordered"): (m, M, "M", ("M", "M")),
}


def _key(identity: Identity) -> tuple[type, str]:
    return identity.function, identity.name


def _named(identity: Identity) -> str:
    return f"{identity.function.__name__}: {identity.name}"


each_identity = pytest.mark.parametrize("identity", IDENTITIES, ids=_named)


def test_every_identity_has_a_case() -> None:
    assert sorted(map(str, map(_key, IDENTITIES))) == sorted(map(str, CASES))


@each_identity
def test_printed_form_and_bounds(identity: Identity) -> None:
    first, second, printed, ends = CASES[_key(identity)]
    result = identity.apply(sympy.sympify(first), sympy.sympify(second))
    assert result is not None
    assert text(result) == printed
    low, high = bounds(result) or ("unknown", "unknown")
    assert (text(low), text(high)) == ends


@each_identity
def test_brute_force(identity: Identity) -> None:
    first, second, _, _ = CASES[_key(identity)]
    first, second = sympy.sympify(first), sympy.sympify(second)
    result = identity.apply(first, second)
    compute = CONCRETE[identity.function]
    count = 0
    for values in valuations((first, second)):
        expected = compute(evaluate(first, values), evaluate(second, values))
        assert evaluate(result, values) == expected, values
        low, high = (evaluate(end, values) for end in bounds(result))
        assert low <= expected <= high, values
        count += 1
    assert count > 1


def valuations(expressions: tuple[sympy.Expr, ...]) -> Iterator[Mapping[sympy.Symbol, int]]:
    """All values of the symbols for extents from 1 to 4, indices within theirs."""
    symbols = set().union(*(expression.free_symbols for expression in expressions))
    indices = sorted((s for s in symbols if isinstance(s, Index)), key=str)
    extents = {s for s in symbols if not isinstance(s, Index)}
    extents |= {s for index in indices for s in index.extent.free_symbols}
    ordered = sorted(extents, key=str)
    for sizes in itertools.product(range(1, 5), repeat=len(ordered)):
        values = dict(zip(ordered, sizes, strict=True))
        ranges = [range(int(index.extent.xreplace(values))) for index in indices]
        for chosen in itertools.product(*ranges):
            yield values | dict(zip(indices, chosen, strict=True))


class Number(int):
    """An integer whose `@` is ceildiv, so that a statement is read as Python reads it."""

    def __add__(self, other: int) -> Number:
        return Number(int(self) + int(other))

    def __mul__(self, other: int) -> Number:
        return Number(int(self) * int(other))

    def __floordiv__(self, other: int) -> Number:
        return Number(int(self) // int(other))

    def __mod__(self, other: int) -> Number:
        return Number(int(self) % int(other))

    def __matmul__(self, other: int) -> Number:
        return Number(-(-int(self) // int(other)))


@each_identity
def test_statement(identity: Identity) -> None:
    """The statement itself, as it is written, for small integers, divisors from 1."""
    statement, _, condition = identity.statement.partition(" if ")
    for name, operator in (("floordiv", "//"), ("ceildiv", "@"), ("mod", "%")):
        statement = statement.replace(f" {name} ", f" {operator} ")
    left, right = statement.split(" = ")
    names = sorted(set(re.findall(r"\b[a-z]\b", identity.statement)))
    ranges = [range(1, 5) if name in "nmkg" else range(-4, 7) for name in names]
    left, right, condition = (
        compile(part, "statement", "eval") for part in (left, right, condition or "True")
    )
    holds = 0
    for values in itertools.product(*ranges):
        scope = dict(zip(names, map(Number, values), strict=True))
        if eval(condition, scope):
            assert eval(left, scope) == eval(right, scope), scope
            holds += 1
    assert holds >= 10


def test_a_wrong_statement_would_be_seen() -> None:
    wrong = Identity(Mod, "wrong", "a mod n = a if 0 <= a <= n", lambda a, n: None)
    with pytest.raises(AssertionError):
        test_statement(wrong)


@pytest.mark.parametrize(
    ("expression", "simple"),
    [
        (CeilDiv(K, M) * FloorDiv(big, CeilDiv(K, M)) + Mod(big, CeilDiv(K, M)), "i"),
        (FloorDiv(a, 4) * 4 + Mod(a, 4), "a"),
        (FloorDiv(a, 12) * 8 + Mod(FloorDiv(a, 3), 4) * 2, "(a floordiv 3) * 2"),
        (FloorDiv(m * CeilDiv(K, M) + Index("k", CeilDiv(K, M)), CeilDiv(K, M)), "m"),
        (Mod(m * N * L + n * L, L), "0"),
    ],
)
def test_simplify(expression: sympy.Expr, simple: str) -> None:
    assert text(simplify(expression)) == simple
    for values in valuations((expression,)):
        assert evaluate(simplify(expression), values) == evaluate(expression, values)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (FloorDiv(a + 1, 4), FloorDiv(a, 4)),
        (Mod(m, N), m),
        (Minimum(m, n), m),
        (CeilDiv(K, M) * M, K),
    ],
)
def test_what_is_not_equal_is_not_proved(first: sympy.Expr, second: sympy.Expr) -> None:
    assert not equal(first, second)
    assert any(
        evaluate(first, values) != evaluate(second, values)
        for values in valuations((first, second))
    )


@pytest.mark.parametrize(
    ("expression", "ends"),
    [
        (FloorDiv(big, CeilDiv(K, M)), ("0", "M - 1")),
        (FloorDiv(big, N * CeilDiv(K, M * N)), ("0", "M - 1")),
        (FloorDiv(Index("x", M * N), N), ("0", "M - 1")),
        (FloorDiv(Index("x", M * N), L), ("0", "M * N - 1")),
        (FloorDiv(Index("x", K + 1), CeilDiv(K, M)), ("0", "K")),
        (Mod(big, M), ("0", "M - 1")),
        (m * N + n, ("0", "M * N - 1")),
        (7 - a, ("-22", "7")),
        (Minimum(a, 5), ("0", "5")),
        (Maximum(a, 5), ("5", "29")),
    ],
)
def test_bounds(expression: sympy.Expr, ends: tuple[str, str]) -> None:
    low, high = bounds(expression) or ("unknown", "unknown")
    assert (text(low), text(sympy.expand(high))) == ends
    for values in valuations((expression,)):
        value = evaluate(expression, values)
        assert evaluate(low, values) <= value <= evaluate(high, values), values


@pytest.mark.parametrize(
    ("expression", "by"),
    [
        (a * 12 + b * 8, 4),
        (a * 6 + 3, 3),
        (Minimum(a * 6, b * 9), 3),
        (Maximum(a * 6, b * 4 + 2), 2),
        (Mod(a * 8, 12), 4),
        (FloorDiv(a * 12, 4), 3),
        (FloorDiv(a * 12, 5), 1),
        (sympy.Integer(0), 0),
    ],
)
def test_divisor(expression: sympy.Expr, by: int) -> None:
    assert divisor(expression) == by
    if by:
        assert all(evaluate(expression, values) % by == 0 for values in valuations((expression,)))


def test_order_is_proved_only_where_it_holds() -> None:
    assert is_less(m, M)
    assert not is_less(m, N)
    assert is_nonnegative(M - m - 1)
    assert not is_nonnegative(M - m - 2)
    # A minimum that is taken away and a maximum that is added, whose operands have no order.
    left = M - m - 1
    assert is_nonnegative(left - Minimum(n * 3, left))
    assert is_nonnegative(Minimum(Maximum(n, left), left - Minimum(n * 3, left)))
    assert is_nonnegative(Maximum(m, n) - m)
    assert not is_nonnegative(left - Maximum(n * 3, left))
    assert not is_nonnegative(Minimum(m, n) - m)
    assert not is_nonnegative(left - 1 - Minimum(n * 3, left))
    # What is left of a chunk, cut again and again: its bounds alone would allow less than nothing.
    for _ in range(5):
        chunk = CeilDiv(left, 3)
        left = Minimum(chunk, left - Minimum(Mod(n, 3) * chunk, left))
        assert is_nonnegative(left)
    assert not is_nonnegative(left - 1)
    assert is_less(Mod(big, CeilDiv(K, M)), CeilDiv(K, M))
