"""Index expressions in the notation of the derivation: `m * (K ceildiv M) + k`, `i floordiv S`."""

from __future__ import annotations

import sympy

from shardwright.ir.algebra.index import CeilDiv, FloorDiv, Index, Maximum, Minimum, Mod, Value

# Binding strength of an expression. A division as an operand is always parenthesised.
_DIVISION, _SUM, _PRODUCT, _ATOM = range(4)
_OPERATORS = {FloorDiv: "floordiv", CeilDiv: "ceildiv", Mod: "%"}
_FUNCTIONS = {Minimum: "min", Maximum: "max"}


def text(expr: Value, last: tuple[str, ...] = ()) -> str:
    """Return the expression as a person writes it; symbols named in `last` come last in a sum."""
    return _print(sympy.sympify(expr), last)[0]


def _print(expr: sympy.Expr, last: tuple[str, ...]) -> tuple[str, int]:
    if expr.is_Integer:
        return str(expr), _ATOM if expr >= 0 else _SUM
    if expr.is_Symbol:
        return expr.name, _ATOM
    if expr.is_Add:
        return _sum(expr, last), _SUM
    if expr.is_Mul:
        return _product(expr, last), _PRODUCT
    if expr.is_Pow:
        return " * ".join([_wrapped(expr.base, _ATOM, last)] * int(expr.exp)), _PRODUCT
    if type(expr) in _FUNCTIONS:
        operands = ", ".join(text(operand, last) for operand in _operands(expr))
        return f"{_FUNCTIONS[type(expr)]}({operands})", _ATOM
    first, second = (_wrapped(operand, _ATOM, last) for operand in expr.args)
    return f"{first} {_OPERATORS[type(expr)]} {second}", _DIVISION


def _operands(expr: sympy.Expr) -> list[sympy.Expr]:
    return [
        inner
        for operand in expr.args
        for inner in (_operands(operand) if type(operand) is type(expr) else [operand])
    ]


def _wrapped(expr: sympy.Expr, level: int, last: tuple[str, ...]) -> str:
    printed, own = _print(expr, last)
    return printed if own >= level else f"({printed})"


def _sum(expr: sympy.Expr, last: tuple[str, ...]) -> str:
    first, *rest = sorted(sympy.Add.make_args(expr), key=lambda term: _place_in_sum(term, last))
    printed = _wrapped(first, _PRODUCT, last)
    for term in rest:
        negative = bool(term.as_coeff_Mul()[0] < 0)
        part = _wrapped(-term if negative else term, _PRODUCT, last)
        printed += f" {'-' if negative else '+'} {part}"
    return printed


def _place_in_sum(term: sympy.Expr, last: tuple[str, ...]) -> tuple[object, ...]:
    """Return the sort key of a term: positive terms first, numbers and `last` at the end, larger
    strides before smaller ones."""
    coefficient, rest = term.as_coeff_Mul()
    factors = len(sympy.Mul.make_args(rest))
    return (
        bool(coefficient < 0),
        bool(term.is_Integer),
        str(term) in last,
        -factors,
        -abs(int(coefficient)),
        str(term),
    )


def _product(expr: sympy.Expr, last: tuple[str, ...]) -> str:
    coefficient, rest = expr.as_coeff_Mul()
    factors = sorted(sympy.Mul.make_args(rest), key=_place_in_product)
    if coefficient == -1:
        return f"-{_wrapped(rest, _ATOM, last)}"
    parts = [_wrapped(factor, _PRODUCT if factor.is_Pow else _ATOM, last) for factor in factors]
    return " * ".join(parts if coefficient == 1 else [*parts, str(coefficient)])


def _place_in_product(factor: sympy.Expr) -> tuple[int, str, int, str]:
    """Return the sort key of a factor: factors that vary over devices or elements, then sizes,
    then shard sizes."""
    if factor.is_Symbol and not isinstance(factor, Index):
        kind = 1
    elif isinstance(factor, CeilDiv):
        kind = 2
    else:
        kind = 0
    name = str(factor)
    return kind, name[:1], len(name), name
