"""Random programs that call the user's functions several times, with random shardings.

`case(seed, mesh)`: a random list of calls. The functions have several results, results that only
their callers use, keywords, numbers, other functions inside, and jitted functions of JAX. They are
called with values of several shapes and dtypes, in loops and with one value for two operands.
"""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import random_functions

import shardwright as sw

SIZES = (16, 32)


def norm(x: Any, scale: Any, eps: float = 1e-3, cast: Any = jnp.float32) -> Any:
    wide = x.astype(cast)
    mean = jnp.mean(wide * wide, axis=-1, keepdims=True)
    return (wide * jax.lax.rsqrt(mean + eps)).astype(x.dtype) * scale


def moments(x: Any, axis: int = 0) -> tuple[Any, Any, Any]:
    mean = x.mean(axis, keepdims=True)
    centred = x - mean
    return centred, mean, (centred**2).sum(axis, keepdims=True) / 7.0


def gate(x: Any, y: Any, *, by: float) -> Any:
    kept = jnp.tanh(x) * by
    return jnp.where(y > 0, kept, y - kept)


def squash(x: Any) -> Any:
    return jax.nn.gelu(x) + jax.nn.silu(x - 1)


def rotated(x: Any) -> Any:
    half = x.shape[-1] // 2
    angles = jnp.arange(half, dtype=jnp.float32) / half
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    a, b = x[:, :half], x[:, half:]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1).astype(x.dtype)


def nested(x: Any, y: Any) -> tuple[Any, Any]:
    centred, _, spread = moments(gate(x, y, by=0.5), axis=-1)
    return squash(centred), norm(y, jnp.ones((), y.dtype)) + spread.astype(y.dtype)


def joined(x: Any, y: Any) -> tuple[Any, Any]:
    both = jnp.concatenate([x, y + 1], axis=0)
    return both[1 : 1 + x.shape[0]], both.sum(0, keepdims=True)


def turned(x: Any, y: Any) -> Any:
    z = jnp.tanh(x) + 0.25 * x
    w = z * 3 - y
    return (z @ w.T / 16).astype(x.dtype) @ y / 16


def masked(x: Any) -> Any:
    rows = jnp.arange(x.shape[0])[:, None]
    return jnp.where(rows < 5, x, -x) * jnp.where(rows % 2 == 0, 1.0, 0.5).astype(x.dtype)


def shifted(x: Any, by: int) -> Any:
    row = jax.lax.dynamic_slice_in_dim(x, by, 1, axis=0)
    return jax.lax.dynamic_update_slice_in_dim(x * 0.5, row + 1, -2, axis=0)


@jax.jit
def jitted(x: Any, y: Any) -> tuple[Any, Any]:
    z = x * y - 1
    return jnp.sin(z) * jnp.cos(y), z.sum(1, keepdims=True)


@jax.custom_jvp
def own(x: Any) -> Any:
    return jnp.sin(x) * 2 + x * x - 0.5


own.defjvps(lambda t, _, x: t * (jnp.cos(x) * 2 + 2 * x))


def again(x: Any, y: Any) -> Any:
    return jax.checkpoint(lambda a: squash(a) * jnp.cos(a) + gate(a, y, by=2.0))(x)


def scanned(x: Any, y: Any) -> Any:
    def turn(carry: Any, row: Any) -> tuple[Any, Any]:
        made = gate(carry, row, by=0.25) + gate(row, carry, by=0.25)
        return squash(made), squash(row)

    last, rows = jax.lax.scan(turn, y[0], x)
    return rows + last


FUNCTIONS: dict[str, Any] = {
    "norm": lambda x, y: norm(x, y[:1]),
    "norm with eps": lambda x, y: norm(x, y[0], eps=0.5),
    "moments": lambda x, y: moments(x),
    "moments of rows": lambda x, y: moments(x + y, 1)[2:] + moments(x, 1)[:1],
    "gate": lambda x, y: gate(x, y, by=3.0),
    "gate of one": lambda x, y: gate(x, x, by=3.0),
    "squash": lambda x, y: squash(x),
    "rotated": lambda x, y: rotated(x) - rotated(y),
    "nested": nested,
    "joined": joined,
    "turned": turned,
    "masked": lambda x, y: masked(x),
    "shifted": lambda x, y: shifted(x, 2) + shifted(y, 3),
    "jitted": jitted,
    "own": lambda x, y: own(x),
    "again": again,
    "scanned": scanned,
    "loop": lambda x, y: functools.reduce(lambda a, b: gate(a, b, by=1.5), (x, y, x, y)),
    "list": lambda x, y: sum(squash(each) for each in (x, y, x + y)),
    "softmax": lambda x, y: jax.nn.softmax(x, axis=-1) + jax.nn.softmax(y, axis=-1),
}


@dataclass(eq=False)  # a function is itself alone
class Calls:
    """A function by its calls: (function, operand, operand), where the first operands are the
    arguments. `kept`: the values that are results as well."""

    calls: list[tuple[str, int, int]]
    kept: list[int]
    avals: tuple[Any, ...]
    inputs: tuple[Any, ...] = ()
    outputs: tuple[Any, ...] = field(default=())

    def __call__(self, *arguments: Any) -> tuple[Any, ...]:
        values = list(arguments)
        for name, one, other in self.calls:
            x, y = values[one], values[other].astype(values[one].dtype)
            y = jnp.resize(y, x.shape) if y.shape != x.shape else y
            made = FUNCTIONS[name](x, y)
            first, *others = made if isinstance(made, tuple) else (made,)
            values.append(sum((jnp.broadcast_to(each, x.shape) for each in others), first))
        return (values[-1], *(values[at] for at in self.kept))


def case(seed: int, mesh: sw.Mesh) -> Calls:
    """Return what a seed makes: 6 to 12 calls of two to four functions."""
    rng = random.Random(seed)
    count = rng.randint(2, 3)
    shapes = [(rng.choice(SIZES), rng.choice(SIZES)) for _ in range(rng.randint(1, 2))]
    dtypes = [jnp.float32, rng.choice([jnp.float32, jnp.float32, jnp.bfloat16])]
    avals = tuple(
        jax.ShapeDtypeStruct(rng.choice(shapes), rng.choice(dtypes)) for _ in range(count)
    )
    names = rng.sample(list(FUNCTIONS), rng.randint(2, 4))
    calls = []
    for at in range(rng.randint(6, 12)):
        one = max(rng.randrange(count + at), rng.randrange(count + at))
        calls.append((rng.choice(names), one, rng.randrange(count + at)))
    kept = rng.sample(range(count, count + len(calls)), rng.randint(0, 2))
    made = Calls(calls, kept, avals)

    def maybe(aval: Any, chance: float) -> sw.Sharding | None:
        whole = random_functions.random_sharding(rng, aval.shape, False, (mesh,))
        return whole if rng.random() < chance else None

    made.inputs = tuple(maybe(aval, 0.7) for aval in avals)
    results = jax.eval_shape(made, *avals)
    made.outputs = tuple(maybe(aval, 0.4) for aval in results)
    return made
