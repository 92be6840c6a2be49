"""Direct exchanges: every move receives what its busiest device lacks, and no more."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from places import TESTS

import shardwright as sw
from shardwright.codegen.partition.local.layout import LocalLayout
from shardwright.codegen.partition.local.moves import Tensor, way

SHAPE, ITEM = (16, 32), 4
PROCESS = """
import os, sys
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, PartitionSpec as P
import shardwright as sw

SIZES = {"x": 4, "y": 2}
MESH = Mesh(np.array(jax.devices()).reshape(4, 2), tuple(SIZES))
SWAPPED = [int(each) for each in sys.argv[1:]]  # tables in which two rows are swapped


def swap(rows):
    other = next(place for place, row in enumerate(rows) if row != rows[0])
    rows[0], rows[other] = rows[other], rows[0]


def same(dtype, start, end):
    aval = jax.ShapeDtypeStruct((24, 48), jnp.dtype(dtype))
    program = sw.partition(
        lambda x: x, aval, mesh=sw.Mesh(SIZES), in_shardings=start, out_shardings=end
    )
    text = sw.emit(program).module
    assert "blocks = " in text, (start, end)
    names = {"__name__": "emitted"}
    exec(compile(text, "emitted", "exec"), names)
    tables = [rows for name, rows in names.items() if name.startswith(("SENT", "PLACED"))]
    for place in SWAPPED if tables else ():
        swap(tables[place])
    run = names["program"](MESH)
    x, weights = np.random.default_rng(0).normal(size=(2, 24, 48)).astype("f")
    x = jnp.asarray(x > 0 if dtype == "bool" else x).astype(dtype)
    for fn in (run, jax.jit(run)):
        if not (np.asarray(fn(x)) == np.asarray(x)).all():
            return False
        if dtype == "float32":
            found = jax.grad(lambda x: (fn(x) * weights).sum())(x)
            if not (np.asarray(found) == weights).all():
                return False
    return True


MOVES = (
    ("float32", P("x", "y"), P("y", "x")),
    ("bfloat16", P("y"), P("x", "y")),
    ("bool", P(("x", "y")), P("y", "x")),
    ("float32", P(("x", "y")), P(None, ("y", "x"))),  # one all-to-all, without tables
)
for move in MOVES:
    print("same" if same(*move) else "different", *move)
"""


def layouts(names: tuple[str, ...]) -> list[LocalLayout]:
    found = {
        LocalLayout((order[:cut], order[cut:]))
        for count in range(len(names) + 1)
        for order in itertools.permutations(names, count)
        for cut in range(count + 1)
    }
    return sorted(found, key=str)


def held(layout: LocalLayout, sizes: dict[str, int], at: dict[str, int]) -> np.ndarray:
    """Return which elements a device holds, without the code under test."""
    whole = np.ones(SHAPE, dtype=bool)
    for dim, names in enumerate(layout.dims):
        number = 0
        for name in names:
            number = number * sizes[name] + at[name]
        extent = SHAPE[dim] // math.prod(sizes[name] for name in names)
        index = np.arange(SHAPE[dim]) // extent == number
        whole &= index[:, None] if dim == 0 else index[None, :]
    return whole


MATRICES = ({"x": 2, "y": 4}, {"x": 4, "y": 2})


@pytest.mark.parametrize("sizes", [*MATRICES, {"x": 2, "y": 2, "z": 2}], ids=str)
def test_every_move_receives_what_the_busiest_device_lacks(sizes: dict[str, int]) -> None:
    tensor = Tensor(SHAPE, ITEM, tuple(sizes.items()))
    places = [
        dict(zip(sizes, place, strict=True))
        for place in itertools.product(*map(range, sizes.values()))
    ]
    known = layouts(tuple(sizes))
    holds = {each: [held(each, sizes, at) for at in places] for each in known}
    over = []
    for source, target in itertools.permutations(known, 2):
        lacks = [new & ~old for old, new in zip(holds[source], holds[target], strict=True)]
        bound = ITEM * max(int(each.sum()) for each in lacks)
        received = sum(change.received for change in way((source,), target, tensor)[2])
        if received != bound:
            over.append((str(source), str(target), received, bound))
    assert over == []


@pytest.mark.parametrize("sizes", MATRICES, ids=str)
def test_a_program_receives_at_most_the_steps_of_a_reshard(sizes: dict[str, int]) -> None:
    aval, mesh = jax.ShapeDtypeStruct(SHAPE, jnp.float32), sw.Mesh(sizes)
    over, less = [], 0
    for start, end in itertools.permutations(map(str, layouts(tuple(sizes))), 2):
        sides = {"in_shardings": start, "out_shardings": end}
        moved = sw.partition(lambda x: x, aval, mesh=mesh, **sides).bytes_received
        reshard = sw.Reshard(SHAPE, "float32", mesh.sharding(start), mesh.sharding(end))
        steps = sw.plan(reshard, "basis").traffic.received_max
        less += moved < steps
        if moved > steps:
            over.append((start, end, moved, steps))
    assert (over, less) == ([], 40)


def test_rounds_are_counted() -> None:
    """Two permutes run, each with half of the bytes."""
    aval = jax.ShapeDtypeStruct(SHAPE, jnp.float32)
    start, end = '[{"x"}, {"y"}]', '[{"y"}, {"x"}]'
    sides = {"in_shardings": start, "out_shardings": end}
    program = sw.partition(lambda x: x, aval, mesh=sw.Mesh(MATRICES[0]), **sides)
    (found,) = program.communications
    assert str(found) == f"[C1] 2 permutes over x, y, 256 B: result is to be {end}"
    assert (found.op, found.rounds) == ("permute", 2)
    assert '"rounds": 2' in program.to_json()
    assert sw.emit(program).module.count("lax.ppermute(") == 2


def verdicts(*arguments: str) -> list[str]:
    command = [sys.executable, "-c", PROCESS, *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(TESTS)}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [line.split()[0] for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_emitted_moves_are_bitwise_the_same() -> None:
    assert verdicts() == ["same"] * 4


@pytest.mark.slow
@pytest.mark.parametrize("place", ["0", "-1"], ids=["sent", "placed"])
def test_a_table_with_two_rows_swapped_is_found(place: str) -> None:
    assert verdicts(place) == [*["different"] * 3, "same"]
