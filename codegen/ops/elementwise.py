"""Elementwise ops, one row each: operands and results have one shape. To add an op, add a row."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwright.codegen.ops.build import Shapes, aligned
from shardwright.codegen.ops.kind import Evaluate, OpKind
from shardwright.codegen.ops.literals import dtype_text, number
from shardwright.codegen.ops.text import Expression, MakeText, OpText
from shardwright.ir.program import Op, Rule


def aligned_rule(op: Op, operands: Shapes, results: Shapes) -> Rule:
    """Return the rule of an op whose tensors correspond dimension by dimension."""
    return aligned(operands, results)


def elementwise(name: str, text: MakeText, **more: Any) -> OpKind:
    """Return the row for an elementwise op."""
    return OpKind(name, aligned_rule, text, group="elementwise", is_apart=True, **more)


def infix(name: str, symbol: str, **more: Any) -> OpKind:
    """Return the row for an op that is written as an operator between its operands."""

    def text(given: OpText) -> Expression:
        return f"{given.given[0]} {symbol} {given.given[1]}"

    return elementwise(name, text, symbol=symbol, numbers=True, **more)


def function(name: str, called: str, **more: Any) -> OpKind:
    """Return the row for an op that is written as a function of all operands in order."""
    return elementwise(name, lambda text: (called, list(text.given)), **more)


def _div(text: OpText) -> Expression:
    if text.dtype[0] in "iu":
        return "lax.div", list(text.given)
    return f"{text.given[0]} / {text.given[1]}"


def _select(text: OpText) -> Expression:
    if text.dtypes[0] != "bool":
        return "lax.select_n", list(text.given)
    predicate, otherwise, then = text.given
    return "jnp.where", [predicate, then, otherwise]


def _cast(text: OpText) -> Expression:
    return f"{text.given[0]}.astype({dtype_text(text.dtype)})"


def _round(text: OpText) -> Expression:
    method = str(text.has("rounding_method"))
    return "lax.round", [*text.given, f"lax.RoundingMethod.{method}"]


def _reduce_precision(text: OpText) -> Expression:
    bits = (f"{name}={text.has(name)}" for name in ("exponent_bits", "mantissa_bits"))
    return "lax.reduce_precision", [*text.given, *bits]


def _power(text: OpText) -> Expression:
    return f"{text.given[0]} ** {number(text.op.param('y'))}"


def _named(text: OpText) -> Expression:
    return "checkpoint_name", [text.given[0], f'"{text.has("name")}"']


def _on_arrays(computed: Callable[..., Any]) -> Evaluate:
    return lambda op, given, shape: computed(*map(np.asarray, given))


def _chosen(which: Any, *cases: Any) -> Any:
    return np.choose(which.astype(int), cases)


def _selected(which: Any, *cases: Any) -> Any:
    return cases[int(which)]


KINDS = (
    infix(
        "add",
        "+",
        terms="together",
        computed=np.add,
        neutral=0,
        commutes=True,
        evaluate=_on_arrays(np.add),
    ),
    infix("add_any", "+", stem="add", terms="together", computed=np.add, neutral=0, commutes=True),
    infix(
        "sub",
        "-",
        terms="together",
        computed=np.subtract,
        neutral=0,
        evaluate=_on_arrays(np.subtract),
    ),
    infix(
        "mul",
        "*",
        terms="either",
        computed=np.multiply,
        neutral=1,
        commutes=True,
        evaluate=_on_arrays(np.multiply),
    ),
    infix("eq", "==", computed=np.equal, commutes=True),
    infix("ne", "!=", computed=np.not_equal, commutes=True),
    infix("lt", "<", computed=np.less, evaluate=_on_arrays(np.less)),
    infix("gt", ">", computed=np.greater),
    infix("le", "<=", computed=np.less_equal),
    infix("ge", ">=", computed=np.greater_equal, evaluate=_on_arrays(np.greater_equal)),
    infix("and", "&", commutes=True),
    infix("or", "|", commutes=True),
    infix("xor", "^", commutes=True),
    function("abs", "jnp.abs"),
    function("acos", "lax.acos"),
    function("acosh", "lax.acosh"),
    function("asin", "lax.asin"),
    function("asinh", "lax.asinh"),
    function("atan", "lax.atan"),
    function("atan2", "lax.atan2"),
    function("atanh", "lax.atanh"),
    function("bessel_i0e", "lax.bessel_i0e"),
    function("bessel_i1e", "lax.bessel_i1e"),
    function("cbrt", "lax.cbrt"),
    function("ceil", "jnp.ceil"),
    function("clamp", "lax.clamp"),
    function("clz", "lax.clz"),
    function("complex", "lax.complex"),
    function("conj", "jnp.conj"),
    function("copy", "jnp.copy", terms="first", keeps=True, same=lambda text: True),
    function("cos", "jnp.cos"),
    function("cosh", "lax.cosh"),
    function("digamma", "lax.digamma"),
    function("eq_to", "lax.eq_to_p.bind", is_bound=True),
    function("erf", "lax.erf"),
    function("erf_inv", "lax.erf_inv"),
    function("erfc", "lax.erfc"),
    function("exp", "jnp.exp"),
    function("exp2", "lax.exp2"),
    function("expm1", "jnp.expm1"),
    function("floor", "jnp.floor"),
    function("igamma", "lax.igamma"),
    function("igammac", "lax.igammac"),
    function("imag", "jnp.imag"),
    function("is_finite", "jnp.isfinite"),
    function("le_to", "lax.le_to_p.bind", is_bound=True),
    function("lgamma", "lax.lgamma"),
    function("log", "jnp.log"),
    function("log1p", "jnp.log1p"),
    function("logistic", "lax.logistic"),
    function("lt_to", "lax.lt_to_p.bind", is_bound=True),
    function(
        "max", "jnp.maximum", numbers=True, computed=np.maximum, neutral=-math.inf, commutes=True
    ),
    function(
        "min", "jnp.minimum", numbers=True, computed=np.minimum, neutral=math.inf, commutes=True
    ),
    function("nextafter", "lax.nextafter"),
    function("polygamma", "lax.polygamma"),
    function("population_count", "lax.population_count"),
    function("pow", "lax.pow"),
    function("real", "jnp.real"),
    function("regularized_incomplete_beta", "lax.betainc", loops=True),
    function("rem", "lax.rem"),
    function("rsqrt", "lax.rsqrt"),
    function("shift_left", "lax.shift_left"),
    function("shift_right_arithmetic", "lax.shift_right_arithmetic"),
    function("shift_right_logical", "lax.shift_right_logical"),
    function("sign", "jnp.sign"),
    function("sin", "jnp.sin"),
    function("sinh", "lax.sinh"),
    function("sqrt", "jnp.sqrt", computed=np.sqrt),
    function("square", "lax.square", computed=np.square),
    function("stop_gradient", "lax.stop_gradient", keeps=True),
    function("tan", "jnp.tan"),
    function("tanh", "jnp.tanh"),
    function("zeta", "lax.zeta"),
    elementwise(
        "convert_element_type",
        _cast,
        terms="first",
        stem="cast",
        keeps=True,
        same=lambda text: text.dtypes[0] == text.dtype,
    ),
    elementwise(
        "div", _div, numbers=True, terms="first", symbol="/", computed=np.divide, neutral=1
    ),
    elementwise("integer_pow", _power, stem="pow", same=lambda text: text.op.param("y") == 1),
    elementwise(
        "name", _named, imports="from jax.ad_checkpoint import checkpoint_name", terms="first"
    ),
    elementwise(
        "neg", lambda text: f"-{text.given[0]}", terms="first", symbol="-x", computed=np.negative
    ),
    elementwise("not", lambda text: f"~{text.given[0]}"),
    elementwise("reduce_precision", _reduce_precision),
    elementwise("round", _round),
    elementwise(
        "select_n",
        _select,
        numbers=True,
        terms="cases",
        stem="where",
        computed=_selected,
        evaluate=_on_arrays(_chosen),
    ),
)
