"""Trees of classes, as arguments and results of programs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Weights(NamedTuple):
    """One layer."""

    up: Any
    down: Any
    bias: Any = None


@jax.tree_util.register_dataclass
@dataclass
class State:
    """What a step takes and gives: layers, a number, and a name, which is no array."""

    layers: list[Weights]
    count: Any
    name: str = field(metadata={"static": True})


@jax.tree_util.register_pytree_node_class
class Pair:
    """A node that says itself how it is flattened."""

    def __init__(self, left: Any, right: Any, scale: float) -> None:
        self.left, self.right, self.scale = left, right, scale

    def tree_flatten(self) -> tuple[tuple[Any, Any], float]:
        return (self.left, self.right), self.scale

    @classmethod
    def tree_unflatten(cls, scale: float, children: Any) -> Pair:
        return cls(*children, scale)


def step(state: State, pair: Pair) -> Any:
    """A step of all of them."""
    x = pair.left * pair.scale + pair.right
    layers = []
    for each in state.layers:
        x = jnp.tanh(x @ each.up) @ each.down
        layers.append(Weights(each.up + 1, each.down * x.mean()))
    return State(layers, state.count + 1, state.name), Pair(x, x * 2, pair.scale)


def arguments(layers: int = 2) -> tuple[Any, ...]:
    """Their shapes."""

    def shape(*extents: int) -> Any:
        return jax.ShapeDtypeStruct(extents, jnp.float32)

    several = [Weights(shape(16, 32), shape(32, 16)) for _ in range(layers)]
    count = jax.ShapeDtypeStruct((), jnp.int32)
    return State(several, count, "small"), Pair(shape(8, 16), shape(8, 16), 0.5)


def shardings(layers: int = 2) -> tuple[Any, ...]:
    """How they are split on the mesh d=4, t=2."""
    several = [Weights('[{}, {"t"}]', '[{"t"}, {}]') for _ in range(layers)]
    return State(several, None, "small"), '[{"d"}, {}]'
