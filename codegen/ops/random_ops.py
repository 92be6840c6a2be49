"""Random keys and random bits. Ops on an array of keys apply to each key."""

from __future__ import annotations

from shardwright.codegen.ops.build import Builder, Shapes
from shardwright.codegen.ops.elementwise import aligned_rule
from shardwright.codegen.ops.form_texts import bits as form_texts
from shardwright.codegen.ops.forms import bits as forms
from shardwright.codegen.ops.kind import OpKind
from shardwright.codegen.ops.literals import dtype_text, integers
from shardwright.codegen.ops.text import Expression, OpText
from shardwright.ir.errors import InputError
from shardwright.ir.program import Op, Rule

KEY_KINDS = {"key<fry>": "threefry2x32", "key<rbg>": "rbg", "key<urbg>": "unsafe_rbg"}
"""The implementations of random keys in JAX, by the dtype of key arrays."""


def _kind(text: OpText) -> str:
    """Return the argument that states the kind of keys, whatever the default is.

    Raises InputError for a kind that jax does not support.
    """
    if text.dtype not in KEY_KINDS:
        raise InputError(
            "random keys must have a type that jax supports",
            argument="fn",
            got=f"{text.dtype}{f', {text.op.line}' if text.op.line else ''}",
            expected=f"one of {', '.join(KEY_KINDS.values())}",
        )
    return f'impl="{KEY_KINDS[text.dtype]}"'


def _seed(text: OpText) -> Expression:
    made = f"jax.random.key({{}}, {_kind(text)})"
    return _of_each(text, "seed", made, ())


def _wrap(text: OpText) -> Expression:
    return "jax.random.wrap_key_data", [*text.given, _kind(text)]


def _unwrap(text: OpText) -> Expression:
    return "jax.random.key_data", list(text.given)


def _fold_in(text: OpText) -> Expression:
    alone = all(not shape for shape in text.shapes)
    return "jax.random.fold_in" if alone else "jnp.vectorize(jax.random.fold_in)", [*text.given]


def _split(text: OpText) -> Expression:
    shape = text.shape[len(text.shapes[0]) :]
    return _of_each(text, "key", f"jax.random.split({{}}, {integers(shape)})", shape)


def _bits(text: OpText) -> Expression:
    shape = text.shape[len(text.shapes[0]) :]
    made = f"jax.random.bits({{}}, {integers(shape)}, {dtype_text(text.dtype)})"
    return _of_each(text, "key", made, shape)


def _gamma(text: OpText) -> Expression:
    function = "jax.random.loggamma" if text.has("log_space") else "jax.random.gamma"
    dtype = f"dtype={dtype_text(text.dtype)}"
    keys = len(text.shapes[0])
    if not keys:
        return function, [*text.given, dtype]
    each = f"lambda key, shape: {function}(key, shape, {dtype})"
    return f"{'jax.vmap(' * keys}{each}{')' * keys}", list(text.given)


def _of_each(text: OpText, name: str, made: str, shape: tuple[int, ...]) -> Expression:
    (given,) = text.given
    if not text.shapes[0]:
        function, _, rest = made.partition("({}, ")
        return function, [given, rest.removesuffix(")")]
    dims = ",".join(f"d{number}" for number in range(len(shape)))
    each = [f"lambda {name}: {made.format(name)}", f'signature="()->({dims})"']
    return f"jnp.vectorize({', '.join(each)})", [given]


def _per_position(op: Op, operands: Shapes, results: Shapes) -> Rule:
    """Return the rule of values computed from a key independently at each position, such as random
    bits."""
    build = Builder(operands, results)
    for dim, extent in enumerate(results[0]):
        build.factor(extent, {len(operands): dim})
    return build.rule()


KINDS = (
    OpKind(
        "random_bits",
        _per_position,
        _bits,
        forms.random_bits,
        form_texts.random_bits,
        splits="by form",
        form_imports="from jax.extend.random import threefry_2x32",
    ),
    OpKind("random_fold_in", _per_position, _fold_in, splits="by form"),
    OpKind("random_gamma", text=_gamma, splits="by form"),
    OpKind("random_seed", text=_seed, group="constant", splits="by form"),
    OpKind("random_split", _per_position, _split, splits="by form"),
    OpKind("random_unwrap", text=_unwrap, group="constant", splits="by form"),
    OpKind("random_wrap", text=_wrap, group="constant", splits="by form"),
    OpKind("threefry2x32", aligned_rule, splits="by form"),
)
