"""Functions with loops, branches and manual computations, and shardings for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
from models import jax_mesh, shaped


def recurrent(w: Any, xs: Any, carry: Any) -> Any:
    def body(carry: Any, x: Any) -> Any:
        carry = jnp.tanh(carry @ w + x)
        return carry, carry * 2

    return jax.lax.scan(body, carry, xs)


def stacked(weights: Any, x: Any) -> Any:
    def body(h: Any, w: Any) -> Any:
        return jax.nn.relu(h @ w["a"]) @ w["b"], None

    return jax.lax.scan(body, x, weights)[0].sum()


def repeated(x: Any, w: Any) -> Any:
    def body(state: Any) -> Any:
        return state[0] + 1, jnp.sin(state[1] @ w)

    return jax.lax.while_loop(lambda state: state[0] < 3, body, (0, x))[1]


def chosen(p: Any, x: Any, y: Any) -> Any:
    return jax.lax.cond(p > 0, lambda a, b: a * 2 + b, lambda a, b: jnp.cos(a), x, y)


def cases() -> Iterator[tuple[str, Any, tuple[Any, ...], Any, Any, Any]]:
    """Name, function, avals, shardings of arguments and results, mesh."""
    mesh = jax_mesh(d=4, t=2)

    def at(*entries: Any) -> NamedSharding:
        return NamedSharding(mesh, PartitionSpec(*entries))

    loop = (shaped(16, 16), shaped(5, 8, 16), shaped(8, 16))
    weights = {"a": shaped(3, 16, 32), "b": shaped(3, 32, 16)}
    placed = {"a": at(None, None, "t"), "b": at(None, "t")}
    yield "scan", recurrent, loop, (at(None, "t"), at(None, "d"), at()), None, mesh
    outputs = (at("d"), at(None, None, "t"))
    yield "scan backward", recurrent, loop, (at(), at(), at()), outputs, mesh
    layers = (weights, shaped(8, 16))
    yield "layers", stacked, layers, (placed, at("d")), None, mesh
    yield "gradient of layers", jax.grad(stacked), layers, (placed, at("d")), None, mesh
    pair = (shaped(8, 16), shaped(16, 16))
    yield "while", repeated, pair, (at("d"), at(None, "t")), None, mesh
    avals = (shaped(), shaped(8, 16), shaped(8, 16))
    yield "cond", chosen, avals, (at(), at("d"), at(None, "t")), None, mesh
    inner = jax.shard_map(
        lambda a, w: jnp.tanh(a @ w),
        mesh=mesh,
        in_specs=(PartitionSpec("d", None), PartitionSpec()),
        out_specs=PartitionSpec("d", None),
        axis_names={"d"},
    )

    def manual(x: Any, w: Any) -> Any:
        return inner(x * 2.0, w) + 1.0

    yield "manual, inward", manual, pair, (at(None, "t"), at()), None, mesh
    yield "manual, outward", manual, pair, (at(), at(None, "t")), None, mesh
    yield "manual, backward", manual, pair, (at("d"), at()), at(None, "t"), mesh
