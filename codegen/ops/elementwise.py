"""Elementwise ops by their names in a jaxpr, each with its text in modules. To add an op, add a
line to `INFIX` or `FUNCTIONS`, or to `OTHERS` and a function to `ops/expressions.py`."""

from __future__ import annotations

INFIX = {
    "add": "+",
    "add_any": "+",
    "sub": "-",
    "mul": "*",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "gt": ">",
    "le": "<=",
    "ge": ">=",
    "and": "&",
    "or": "|",
    "xor": "^",
}
"""Ops written as Python operators."""

FUNCTIONS = {
    "abs": "jnp.abs",
    "acos": "lax.acos",
    "acosh": "lax.acosh",
    "asin": "lax.asin",
    "asinh": "lax.asinh",
    "atan": "lax.atan",
    "atan2": "lax.atan2",
    "atanh": "lax.atanh",
    "bessel_i0e": "lax.bessel_i0e",
    "bessel_i1e": "lax.bessel_i1e",
    "cbrt": "lax.cbrt",
    "ceil": "jnp.ceil",
    "clamp": "lax.clamp",
    "clz": "lax.clz",
    "complex": "lax.complex",
    "conj": "jnp.conj",
    "copy": "jnp.copy",
    "cos": "jnp.cos",
    "cosh": "lax.cosh",
    "digamma": "lax.digamma",
    "eq_to": "lax.eq_to_p.bind",
    "erf": "lax.erf",
    "erf_inv": "lax.erf_inv",
    "erfc": "lax.erfc",
    "exp": "jnp.exp",
    "exp2": "lax.exp2",
    "expm1": "jnp.expm1",
    "floor": "jnp.floor",
    "igamma": "lax.igamma",
    "igammac": "lax.igammac",
    "imag": "jnp.imag",
    "is_finite": "jnp.isfinite",
    "le_to": "lax.le_to_p.bind",
    "lgamma": "lax.lgamma",
    "log": "jnp.log",
    "log1p": "jnp.log1p",
    "logistic": "lax.logistic",
    "lt_to": "lax.lt_to_p.bind",
    "max": "jnp.maximum",
    "min": "jnp.minimum",
    "nextafter": "lax.nextafter",
    "polygamma": "lax.polygamma",
    "population_count": "lax.population_count",
    "pow": "lax.pow",
    "real": "jnp.real",
    "regularized_incomplete_beta": "lax.betainc",
    "rem": "lax.rem",
    "rsqrt": "lax.rsqrt",
    "shift_left": "lax.shift_left",
    "shift_right_arithmetic": "lax.shift_right_arithmetic",
    "shift_right_logical": "lax.shift_right_logical",
    "sign": "jnp.sign",
    "sin": "jnp.sin",
    "sinh": "lax.sinh",
    "sqrt": "jnp.sqrt",
    "square": "lax.square",
    "stop_gradient": "lax.stop_gradient",
    "tan": "jnp.tan",
    "tanh": "jnp.tanh",
    "zeta": "lax.zeta",
}
"""Ops written as functions of all operands in order."""

OTHERS = (
    *("convert_element_type", "div", "integer_pow", "name", "neg", "not", "reduce_precision"),
    *("round", "select_n"),
)
"""Ops with a text that depends on more than their operands."""

ELEMENTWISE = frozenset({*INFIX, *FUNCTIONS, *OTHERS})
"""All elementwise ops: operands and results have one shape."""
