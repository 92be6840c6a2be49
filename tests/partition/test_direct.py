"""Direct exchanges: every move receives what its busiest device lacks, and no more."""

from __future__ import annotations

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from programs import findings

import shardwright as sw
from shardwright.codegen.moves import paths
from shardwright.codegen.moves.paths import Tensor, way
from shardwright.codegen.ops.layout import LocalLayout

SHAPE, ITEM = (16, 32), 4


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


def above_the_bound(sizes: dict[str, int]) -> list[tuple[str, str, int, int]]:
    """Return the pairs of layouts between which a move does not receive exactly the bytes that its
    busiest device lacks, with both counts."""
    tensor = Tensor(SHAPE, ITEM, tuple(sizes.items()))
    places = [
        dict(zip(sizes, place, strict=True))
        for place in itertools.product(*map(range, sizes.values()))
    ]
    known = layouts(tuple(sizes))
    holds = {each: [held(each, sizes, at) for at in places] for each in known}
    found = []
    for source, target in itertools.permutations(known, 2):
        lacks = [new & ~old for old, new in zip(holds[source], holds[target], strict=True)]
        bound = ITEM * max(int(each.sum()) for each in lacks)
        received = sum(change.received for change in way((source,), target, tensor)[2])
        if received != bound:
            found.append((str(source), str(target), received, bound))
    return found


@pytest.mark.parametrize("sizes", [*MATRICES, {"x": 2, "y": 2, "z": 2}], ids=str)
def test_every_move_receives_what_the_busiest_device_lacks(sizes: dict[str, int]) -> None:
    assert above_the_bound(sizes) == []


def test_without_direct_exchanges_moves_receive_more(monkeypatch: pytest.MonkeyPatch) -> None:
    way.cache_clear()
    monkeypatch.setattr(paths, "_direct", lambda *_: iter(()))
    found = above_the_bound(MATRICES[1])
    way.cache_clear()
    assert ('[{"x"}, {"y"}]', '[{"y"}, {"x"}]', 480, 256) in found


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


@pytest.mark.parametrize("topology", ["v5e:2x4", "h100:8"])
def test_on_a_topology_none_takes_longer_than_other_collectives(
    topology: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seconds() -> list[float]:
        way.cache_clear()
        return [
            sum(
                sw.partition(
                    lambda x: x,
                    jax.ShapeDtypeStruct((1024, 1024), jnp.float32),
                    mesh=sw.Mesh(MATRICES[0]),
                    in_shardings=start,
                    out_shardings=end,
                    topology=topology,
                ).seconds(topology)
            )
            for start, end in itertools.permutations(map(str, layouts(("x", "y"))), 2)
        ]

    found = seconds()
    monkeypatch.setattr(paths, "_direct", lambda *_: iter(()))
    others = seconds()
    way.cache_clear()
    assert all(ours <= theirs * 1.001 for ours, theirs in zip(found, others, strict=True))
    assert sum(ours < 0.9 * theirs for ours, theirs in zip(found, others, strict=True)) > 4


def test_rounds_are_counted() -> None:
    """Two permutes run, each with half of the bytes."""
    aval = jax.ShapeDtypeStruct(SHAPE, jnp.float32)
    start, end = '[{"x"}, {"y"}]', '[{"y"}, {"x"}]'
    sides = {"in_shardings": start, "out_shardings": end}
    program = sw.partition(lambda x: x, aval, mesh=sw.Mesh(MATRICES[0]), **sides)
    (found,) = program.communications
    assert str(found) == f"[C1] 2 permutes over x, y, 256 B: result must be {end}"
    assert (found.op, found.rounds) == ("permute", 2)
    assert '"rounds": 2' in program.to_json()
    assert sw.emit(program).module.count("lax.ppermute(") == 2


def different(*words: str) -> list[str]:
    """What differs, of moves in whose tables two rows may be swapped, or of moves in programs."""
    found = findings("direct_process.py", *words)
    assert len(found) > 2
    return [name for name, said in found.items() if said]


@pytest.mark.slow
def test_emitted_moves_are_bitwise_the_same() -> None:
    assert different("moves") == []


@pytest.mark.slow
@pytest.mark.parametrize("place", ["0", "-1"], ids=["sent", "placed"])
def test_a_table_with_two_rows_swapped_is_found(place: str) -> None:
    assert len(different("moves", place)) == 3  # the fourth has no table


@pytest.mark.slow
def test_moves_in_programs_give_one_devices_values_and_gradients() -> None:
    assert different("programs") == []
