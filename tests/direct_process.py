"""Runs direct exchanges on 8 devices, in a process of its own: prints what differs as JSON.

python tests/direct_process.py moves 0

`moves`: single ones; with 0 or -1 two rows of the first or last table are swapped. `programs`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from cpu_devices import flags

os.environ["XLA_FLAGS"] = flags(8)
os.environ["JAX_PLATFORMS"] = "cpu"

import emitted
import jax
import jax.numpy as jnp
import models
import numpy as np
from jax.sharding import PartitionSpec as P

import shardwright as sw
from shardwright.codegen.partition.local.steps import moves_of

SIZES = {"x": 4, "y": 2}
SHAPE = (24, 48)
MOVES = (
    ("float32", P("x", "y"), P("y", "x")),
    ("bfloat16", P("y"), P("x", "y")),
    ("bool", P(("x", "y")), P("y", "x")),
    ("float32", P(("x", "y")), P(None, ("y", "x"))),  # one all-to-all, without tables
)


def swap(rows: list[Any]) -> None:
    other = next(place for place, row in enumerate(rows) if row != rows[0])
    rows[0], rows[other] = rows[other], rows[0]


def fault_of_move(dtype: str, start: Any, end: Any, swapped: tuple[str, ...]) -> str:
    """What is not bitwise the same after a move, or in its gradient."""
    aval = jax.ShapeDtypeStruct(SHAPE, jnp.dtype(dtype))
    sides = {"in_shardings": start, "out_shardings": end}
    names = emitted.module_of(sw.partition(lambda x: x, aval, mesh=sw.Mesh(SIZES), **sides))
    tables = [rows for name, rows in names.items() if name.startswith(("SENT", "PLACED"))]
    for place in swapped if tables else ():
        swap(tables[int(place)])
    run = names["program"](models.jax_mesh(**SIZES))
    x, weights = np.random.default_rng(0).normal(size=(2, *SHAPE)).astype("f")
    x = jnp.asarray(x > 0 if dtype == "bool" else x).astype(dtype)
    for fn in (run, jax.jit(run)):
        if not (np.asarray(fn(x)) == np.asarray(x)).all():
            return "values"
        if dtype == "float32":
            found = jax.grad(lambda x, fn=fn: (fn(x) * weights).sum())(x)
            if not (np.asarray(found) == weights).all():
                return "gradient"
    return ""


def of_moves(*swapped: str) -> dict[str, str]:
    return {str(move): fault_of_move(*move, swapped) for move in MOVES}


def flow(x: Any, w: Any, keys: Any) -> Any:
    """Moves in a loop and in a branch, of keys, of partial sums, and beside an odd extent."""

    one, other = P("x", "y"), P("y", "x")

    def moved(h: Any, start: Any, end: Any) -> Any:
        return sw.constrain(sw.constrain(h, start), end)

    def turn(h: Any, row: Any) -> Any:
        return moved(moved(jnp.tanh(h), one, other) + row, other, one), h.sum(1)

    draw = jax.vmap(jax.vmap(lambda key: jax.random.normal(key, (6,))))
    x += draw(sw.constrain(keys, other)).reshape(SHAPE) / 8
    x, sums = jax.lax.scan(turn, x, w[:3])
    terms = sw.constrain(x, P(None, "y")) @ sw.constrain(w, P("y")) / 8
    terms = moved(terms, '[{"x"}, {}], unreduced={"y"}', '[{}, {"x"}], unreduced={"y"}')
    x = sw.constrain(terms, P(("y", "x"))) + sums.mean(0)[:, None]
    x = jax.lax.cond(x[0, 0] > 9, jnp.cos, lambda x: moved(jnp.sin(x), one, other), x)
    odd = moved(jnp.diff(moved(x, other, one), axis=0), P(None, "x"), P(None, "y"))
    return moved(jnp.concatenate((odd, x[:1])), one, other)


def gradient_of(fn: Callable[..., Any]) -> Callable[..., Any]:
    def loss(x: Any, w: Any, keys: Any) -> Any:
        return jnp.sin(fn(x, w, keys)).sum()

    return jax.value_and_grad(loss, (0, 1))


def fault_of_flow(mode: str, what: str) -> str:
    """What differs from one device's, of a function or of its gradient (made by jax: outside)."""
    shapes = (SHAPE, (SHAPE[1], SHAPE[1]))
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), (SHAPE[0], 8)))
    avals = [*(models.shaped(*each) for each in shapes), keys]
    fn = gradient_of(flow) if what == "inside" else flow
    given = (P("x", "y"), P("y"), P("x", "y"))
    program = sw.partition(fn, *avals, mesh=sw.Mesh(SIZES), in_shardings=given, mode=mode)
    moved = [step for step, _ in moves_of(program.local) if step.change.op == "exchange"]
    kinds = {program.local.of(step.operand).dtype[:3] for step in moved}
    assert (kinds, len(moved) > 4) == ({"f32", "key"}, True), moved
    mesh = models.jax_mesh(**SIZES)
    if what == "outside":
        return emitted.fault_of_gradient(gradient_of, flow, avals, program, mesh)
    return emitted.fault(jax.jit(fn), avals, program, mesh)


def of_programs() -> dict[str, str]:
    ways = ("cheapest", "forward"), ("cheapest", "inside"), ("as_shardy", "outside")
    return {" ".join(way): fault_of_flow(*way) for way in ways}


RUNS = {"moves": of_moves, "programs": of_programs}

if __name__ == "__main__":
    print(json.dumps(RUNS[sys.argv[1]](*sys.argv[2:])))
