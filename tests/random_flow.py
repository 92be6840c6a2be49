"""Random functions of loops, branches, what is computed again and manual parts, inside of each
other, with random shardings and constraints, on a mesh of the axes d and t."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P
from models import shaped

import shardwright as sw

ROWS, WIDTH, TURNS = 8, 16, 3
AVALS = (shaped(ROWS, WIDTH), shaped(WIDTH, WIDTH), shaped(TURNS, ROWS, WIDTH))
PLAIN = ("tanh", "matmul", "turned", "summed", "shifted", "constrained")
BODIES = ("scan", "added up", "counted", "branch", "switch", "again", "manual")
OUTSIDE = ("constrained", "manual", "scan", "added up", "turned")
"""What stands in no manual part."""
POLICIES = (None, "dots_saveable", "everything_saveable", "nothing_saveable")
Step = Callable[[Any, Any, Any], Any]  # from the state, the weights and the batches to the state


@dataclass(frozen=True)
class FlowProgram:
    """A function by its steps, and the shardings of its arguments."""

    steps: tuple[Step, ...]
    kinds: tuple[str, ...]
    inputs: tuple[str, ...]
    differentiable: bool

    def __call__(self, x: Any, w: Any, xs: Any) -> Any:
        return functools.reduce(lambda h, step: step(h, w, xs), self.steps, x)


def flow_program(seed: int, mesh: Any) -> FlowProgram:
    """What a seed makes on a mesh of jax."""
    make = _Make(random.Random(seed), mesh)
    steps = make.steps(make.rng.randint(2, 4), 2)
    inputs = tuple(make.sharding(len(aval.shape)) for aval in AVALS)
    return FlowProgram(steps, tuple(make.kinds), inputs, "until" not in make.kinds)


class _Make:
    """One walk; `kinds` grows as it goes."""

    def __init__(self, rng: random.Random, mesh: Any) -> None:
        self.rng, self.mesh = rng, mesh
        self.kinds: list[str] = []
        self.inside = False  # of a manual part

    def sharding(self, rank: int) -> str:
        dims: list[list[str]] = [[] for _ in range(rank)]
        for axis in self.rng.sample("dt", 2):
            if self.rng.random() < 0.6:
                dims[self.rng.randrange(max(rank - 2, 0), rank)].append(f'"{axis}"')
        return "[" + ", ".join("{" + ", ".join(dim) + "}" for dim in dims) + "]"

    def steps(self, count: int, depth: int) -> tuple[Step, ...]:
        return tuple(self.step(depth) for _ in range(count))

    def body(self, depth: int) -> Step:
        steps = self.steps(self.rng.randint(1, 2), depth - 1)
        return lambda h, w, xs: functools.reduce(lambda a, step: step(a, w, xs), steps, h)

    def step(self, depth: int) -> Step:
        more = (*BODIES, *(("until",) if self.rng.random() < 0.3 else ())) if depth else ()
        kinds = (*PLAIN, *more, *more)
        if self.inside:
            kinds = tuple(kind for kind in kinds if kind not in OUTSIDE)
        kind = self.rng.choice(kinds)
        self.kinds.append(kind)
        made: Step = getattr(self, "_" + kind.replace(" ", "_"))(depth)
        return made

    def _tanh(self, _: int) -> Step:
        return lambda h, w, xs: jnp.tanh(h)

    def _matmul(self, _: int) -> Step:
        return lambda h, w, xs: h @ w / 4

    def _turned(self, _: int) -> Step:
        return lambda h, w, xs: (h.T @ jnp.tanh(h))[: h.shape[0]] / 4

    def _summed(self, _: int) -> Step:
        dim = self.rng.randrange(2)
        return lambda h, w, xs: h - jax.nn.relu(h).mean(dim, keepdims=True)

    def _shifted(self, _: int) -> Step:
        return lambda h, w, xs: h + jnp.cos(w[:1]) * 0.1

    def _constrained(self, _: int) -> Step:
        given = self.sharding(2)
        return lambda h, w, xs: sw.constrain(h, given)

    def _scan(self, depth: int) -> Step:
        body, reverse = self.body(depth), self.rng.random() < 0.3

        def step(h: Any, w: Any, xs: Any) -> Any:
            def turn(h: Any, x: Any) -> Any:
                h = body(h + x[: h.shape[0]] / 2, w, xs)
                return h, h.sum(1)

            last, sums = lax.scan(turn, h, xs, reverse=reverse)
            return last + sums.mean(0)[:, None] / 16

        return step

    def _added_up(self, depth: int) -> Step:
        body = self.body(depth)

        def step(h: Any, w: Any, xs: Any) -> Any:
            def turn(total: Any, x: Any) -> Any:
                return total + x.T @ body(x, w, xs) / 8, None

            total, _ = lax.scan(turn, jnp.zeros_like(w), xs)
            return h @ jnp.tanh(total / TURNS)

        return step

    def _counted(self, depth: int) -> Step:
        body = self.body(depth)
        return lambda h, w, xs: lax.fori_loop(0, 2, lambda i, a: body(a * (i + 1), w, xs) / 2, h)

    def _until(self, depth: int) -> Step:
        body = self.body(depth)

        def step(h: Any, w: Any, xs: Any) -> Any:
            def goes_on(state: Any) -> Any:
                return (state[0] < 3) & (jnp.abs(state[1]).max() > 1e-3)

            turn = lambda s: (s[0] + 1, body(s[1], w, xs))  # noqa: E731
            return lax.while_loop(goes_on, turn, (0, h))[1]

        return step

    def _branch(self, depth: int) -> Step:
        first, second = self.body(depth), self.body(depth)
        by_sum = self.rng.random() < 0.5

        def step(h: Any, w: Any, xs: Any) -> Any:
            test = (h.sum() if by_sum else h[-1, 3]) > 0.01
            return lax.cond(test, lambda h: first(h, w, xs), lambda h: second(h, w, xs), h)

        return step

    def _switch(self, depth: int) -> Step:
        made = [self.body(depth) for _ in range(3)]

        def step(h: Any, w: Any, xs: Any) -> Any:
            index = jnp.int32(jnp.abs(w[0, 0]) * 8) % 3
            return lax.switch(index, [lambda h, f=f: f(h, w, xs) for f in made], h)

        return step

    def _again(self, depth: int) -> Step:
        body, name = self.body(depth), self.rng.choice(POLICIES)
        policy = name and getattr(jax.checkpoint_policies, name)
        prevent = self.rng.random() < 0.7
        return lambda h, w, xs: jax.checkpoint(
            lambda h, w: body(h, w, xs), policy=policy, prevent_cse=prevent
        )(h, w)

    def _manual(self, depth: int) -> Step:
        axes = self.rng.choice((("d",), ("t",), ("d", "t")))
        along = axes[0]
        self.inside = True
        body = self.body(depth)
        self.inside = False
        way = self.rng.choice(("rows", "columns", "ring"))

        def inner(h: Any, w: Any) -> Any:
            n = lax.axis_size(along)
            if way == "columns":  # a matmul whose sum the user makes
                return lax.psum(jnp.tanh(h) @ w / 4, along)
            if way == "ring":
                h = lax.ppermute(h, along, [(i, (i + 1) % n) for i in range(n)])
            return body(h, w, None) + lax.psum(h.mean(), axes) / 8

        specs = (P(None, along), P(along, None)) if way == "columns" else (P(along, None), P())
        out = P(None, None) if way == "columns" else P(along, None)
        return lambda h, w, xs: jax.shard_map(
            inner,
            mesh=self.mesh,
            in_specs=specs,
            out_specs=out,
            axis_names=set(axes),
            check_vma=False,
        )(h, w)
