"""Splits a program with an elementwise op of which only its row is known: prints what is wrong, and
the text of the op, as JSON."""

from __future__ import annotations

import json
import os

from cpu_devices import flags

os.environ["XLA_FLAGS"] = flags(2)
os.environ["JAX_PLATFORMS"] = "cpu"

import one_row  # isort: skip

import emitted
import jax
import jax.numpy as jnp
import models

import shardwright as sw

MESH = sw.Mesh({"d": 2})
AVALS = (jax.ShapeDtypeStruct((8, 4), "float32"), jax.ShapeDtypeStruct((4, 6), "float32"))
ROWS = ('[{"d"}, {}]', "[{}, {}]")


def fn(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.sum(jnp.tan(x @ w), 0)


if __name__ == "__main__":
    program = sw.partition(fn, *AVALS, mesh=MESH, in_shardings=ROWS)
    wrong = emitted.fault(fn, AVALS, program, models.jax_mesh(**MESH.sizes))
    lines = sw.emit(program).module.splitlines()
    text = [line.strip() for line in lines if "jnp.cos" in line]
    print(json.dumps({"op": one_row.OP, "wrong": wrong, "text": text}))
