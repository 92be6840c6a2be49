"""Print index expressions as source text of Python, Triton and Pallas kernels.

Division rounds towards zero in Triton and Pallas kernels, but down in Python. A quotient or
remainder is therefore printed only if its dividend is proved non-negative. In a Pallas kernel, `//`
takes nine operations, because it must round negative values down; the functions `div` and `rem`,
which are printed instead, take one each.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy

from shardwright.ir.algebra.bounds import is_nonnegative
from shardwright.ir.algebra.index import CeilDiv, FloorDiv, Maximum, Minimum, Mod, Value
from shardwright.ir.errors import InternalError

_SUM, _PRODUCT, _ATOM = 1, 2, 3


@dataclass(frozen=True)
class Printer:
    """Prints expressions for one target.

    `minimum`, `maximum`: the names of these functions. `quotient`, `remainder`: the names of the
    functions that divide; empty if the target uses `//` and `%`.
    """

    minimum: str = "min"
    maximum: str = "max"
    quotient: str = ""
    remainder: str = ""

    def text(self, expr: Value) -> str:
        """Return the source text of an expression. Raise InternalError if it divides a dividend
        that may be negative."""
        return self._print(sympy.sympify(expr))[0]

    def calls(self, expr: Value) -> frozenset[str]:
        """Return the names of the functions called in the expression's text."""
        found = set()
        for part in sympy.preorder_traversal(sympy.sympify(expr)):
            match part:
                case Minimum():
                    found.add(self.minimum)
                case Maximum():
                    found.add(self.maximum)
                case FloorDiv() | CeilDiv():
                    found.add(self.quotient)
                case Mod():
                    found.add(self.remainder)
        return frozenset(found - {""})

    def _print(self, expr: sympy.Expr) -> tuple[str, int]:
        if isinstance(expr, sympy.Integer):
            return str(expr), _ATOM if expr >= 0 else _SUM
        if isinstance(expr, sympy.Symbol):
            return expr.name, _ATOM
        if isinstance(expr, sympy.Add):
            return self._sum(expr), _SUM
        if isinstance(expr, sympy.Mul):
            return self._product(expr), _PRODUCT
        if isinstance(expr, Minimum | Maximum):
            name = self.minimum if isinstance(expr, Minimum) else self.maximum
            return f"{name}({', '.join(self.text(a) for a in expr.args)})", _ATOM
        if isinstance(expr, FloorDiv | CeilDiv | Mod):
            return self._division(expr)
        raise InternalError(f"cannot print {expr!r}")

    def terms(self, expr: sympy.Expr) -> list[str]:
        """Return the texts of the terms of a sum in order; each but the first begins with `+` or
        `-`."""
        first, *rest = sorted(sympy.Add.make_args(expr), key=_rank)
        texts = [self._wrapped(first, _PRODUCT if first.as_coeff_Mul()[0] >= 0 else _SUM)]
        for term in rest:
            negative = bool(term.as_coeff_Mul()[0] < 0)
            texts.append(
                f"{'-' if negative else '+'} {self._wrapped(-term if negative else term, _PRODUCT)}"
            )
        return texts

    def _sum(self, expr: sympy.Expr) -> str:
        return " ".join(self.terms(expr))

    def _product(self, expr: sympy.Expr) -> str:
        coefficient, rest = expr.as_coeff_Mul()
        factors = sorted(sympy.Mul.make_args(rest), key=lambda f: (f.is_Symbol, str(f)))
        if coefficient == -1:
            return f"-{self._wrapped(rest, _ATOM)}"
        first = self._wrapped(factors[0], _PRODUCT)
        others = [self._wrapped(factor, _ATOM) for factor in factors[1:]]
        if coefficient != 1:
            others.append(self._wrapped(coefficient, _ATOM))
        return " * ".join([first, *others])

    def _division(self, expr: sympy.Expr) -> tuple[str, int]:
        dividend, divisor = expr.args
        if not is_nonnegative(dividend):
            raise InternalError(f"a dividend must not be negative: {dividend}")
        if isinstance(expr, CeilDiv):
            dividend = dividend + divisor - 1
        is_rest = isinstance(expr, Mod)
        name = self.remainder if is_rest else self.quotient
        if name:
            return f"{name}({self.text(dividend)}, {self.text(divisor)})", _ATOM
        operator = "%" if is_rest else "//"
        ends = self._wrapped(dividend, _PRODUCT), self._wrapped(divisor, _ATOM)
        return f"{ends[0]} {operator} {ends[1]}", _PRODUCT

    def _wrapped(self, expr: sympy.Expr, level: int) -> str:
        text, own = self._print(expr)
        return text if own >= level else f"({text})"


def _rank(term: sympy.Expr) -> tuple[bool, bool, int, str]:
    """Return the sort key of a term: positive terms first, constants last, then larger coefficients
    first, then by name."""
    coefficient, rest = term.as_coeff_Mul()
    return bool(coefficient < 0), bool(term.is_Integer), -abs(int(coefficient)), str(rest)


PYTHON = Printer()
TRITON = Printer()
PALLAS = Printer("minimum", "maximum", quotient="div", remainder="rem")
