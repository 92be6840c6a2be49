"""Random keys and random bits; ops on an array of keys apply to each key."""

from __future__ import annotations

from collections.abc import Callable

from shardwright.codegen.ops.literals import dtype_text, integers
from shardwright.codegen.ops.text import Expression, OpText
from shardwright.ir.errors import InputError

KEY_KINDS = {"key<fry>": "threefry2x32", "key<rbg>": "rbg", "key<urbg>": "unsafe_rbg"}
"""JAX's implementations of random keys, by the dtype of key arrays."""


def _kind(text: OpText) -> str:
    """Return the argument that states the kind of keys, whatever the default is.

    Raise InputError for a kind that jax does not support.
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


RANDOM: dict[str, Callable[[OpText], Expression]] = {
    "random_bits": _bits,
    "random_seed": _seed,
    "random_wrap": _wrap,
    "random_unwrap": lambda text: ("jax.random.key_data", list(text.given)),
    "random_fold_in": _fold_in,
    "random_split": _split,
    "random_gamma": _gamma,
}
