"""Random layers, applied several times, with random shardings.

`case(seed, mesh)`: one random list of steps on rows is applied with weights of its own for each
layer. Its values are scaled by rows, columns and casts of one another, so a layer has several
values of one name, many written inside the expressions that use them. Some are results.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import random_functions

import shardwright as sw

WIDTH = 16
STEPS: dict[str, Any] = {
    "add": lambda x, y: x + y,
    "dot": lambda x, y: x @ y / WIDTH,
    "transpose": lambda x, y: x.T - y,
    "tanh": lambda x, y: jnp.tanh(x),
    "rows": lambda x, y: x * jax.lax.rsqrt(jnp.maximum((y > 0).sum(1), 1.0))[:, None],
    "columns": lambda x, y: x / (1.0 + y.sum(0, keepdims=True) ** 2),
    "signs": lambda x, y: x * (y > 0).astype(x.dtype),
    "masked": lambda x, y: jnp.where(jnp.arange(WIDTH)[:, None] < 5, x, y),
}


@dataclass(eq=False)  # a function is itself alone
class Layers:
    """A function by the steps of its layer: (kind, operands), where operand 0 is the rows, 1 and
    2 are weights, and the others are earlier steps. `kept`: the steps that are results as well."""

    steps: list[tuple[str, int, int]]
    kept: list[int]
    count: int
    inputs: tuple[Any, ...] = ()
    outputs: tuple[Any, ...] = ()

    def __call__(self, x: Any, *weights: Any) -> tuple[Any, ...]:
        kept = []
        for number in range(self.count):
            values = [x, weights[2 * number], weights[2 * number + 1]]
            for kind, one, other in self.steps:
                values.append(STEPS[kind](values[one], values[other]))
            x = x + values[-1]
            kept += [values[at] for at in self.kept]
        return (x, *kept)

    @property
    def avals(self) -> tuple[Any, ...]:
        return (jax.ShapeDtypeStruct((WIDTH, WIDTH), jnp.float32),) * (1 + 2 * self.count)


def _operands(rng: random.Random, count: int) -> tuple[int, int]:
    """Two of `count` values, the first of them rather a late one."""
    return max(rng.randrange(count), rng.randrange(count)), rng.randrange(count)


def case(seed: int, mesh: sw.Mesh) -> Layers:
    """Return what a seed makes: two or three layers of 8 to 12 steps."""
    rng = random.Random(seed)
    length = rng.randint(8, 12)
    steps = [
        (
            rng.choice(list(STEPS)),
            max(rng.randrange(3 + at), rng.randrange(3 + at)),
            rng.randrange(3 + at),
        )
        for at in range(length)
    ]
    kept = rng.sample(range(3, 3 + length), rng.randint(0, 2))
    made = Layers(steps, kept, rng.randint(2, 3))

    def maybe(chance: float) -> sw.Sharding | None:
        shape = (WIDTH, WIDTH)
        whole = random_functions.random_sharding(rng, shape, False, (mesh,))
        return whole if rng.random() < chance else None

    weights = [maybe(0.7), maybe(0.7)]  # every layer's alike
    made.inputs = (maybe(0.8), *weights * made.count)
    made.outputs = (maybe(0.3), *[maybe(0.3) for _ in kept] * made.count)
    return made
