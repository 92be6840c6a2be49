"""Stages of modules: what they take, and that they are what the emitted modules do.

The link loads of a TPU module are those of the transfers that its own index functions and rounds
name, routed here by the definition: hop by hop, the first axis of the torus first.
"""

from __future__ import annotations

import importlib.util
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from lone import alone

import shardwright as sw
from shardwright.codegen import registry
from shardwright.codegen.hardware.presets import topology_of
from shardwright.codegen.hardware.torus import Torus
from shardwright.codegen.moves.network.links import Flows, Network
from shardwright.codegen.moves.network.timeline import Copies, Sends, Timeline, cost_of
from shardwright.codegen.moves.plan import network_of
from shardwright.codegen.moves.xla import Collective
from shardwright.ir.plan import Plan

IDS = np.arange(4, dtype=np.int64)
GRID = sw.Mesh({"x": 2, "y": 4})


def reshard(source: str, target: str, *shape: int) -> sw.Reshard:
    sides = (GRID.sharding(text) for text in (source, target))
    return sw.Reshard(shape, "float32", *sides)


def ring() -> Iterator[Flows]:
    yield Flows(IDS, np.roll(IDS, -1), np.full(4, 1e6))


@pytest.mark.parametrize(
    ("source", "target", "dtype", "passes"),
    [
        ('[{"x"}, {}]', '[{"x"}, {"y"}]', "int8", {"result": 2 * 32 * 8}),
        ('[{"y"}, {}]', '[{}, {"y"}]', "float32", {"result": 8 * 512, "rows": 8 * 2 * 512}),
        ('[{"y"}, {}]', '[{}, {"y"}]', "int8", {"result": 2 * 512, "rows": 8 * 2 * 512}),
        ('[{"y"}, {}]', "[{}, {}]", "float32", {"result": 8 * 2048}),
        # Two rounds, of which the first pass is one everywhere.
        ('[{"x"}, {"y"}]', '[{"y"}, {"x"}]', "int8", {"boxes": 2 * 256, "result": 2 * 256}),
    ],
)
def test_passes_of_a_processor(
    source: str, target: str, dtype: str, passes: dict[str, int]
) -> None:
    """By hand: of devices that share a processor, and of no others."""
    moved = sw.Reshard((64, 32), dtype, source, target, mesh=GRID)
    timeline = registry.backend("jax_xla").timeline(sw.plan(moved))
    here, there = (
        cost_of(timeline, network_of(moved, topology_of(text))).stages
        for text in ("cpu:8,memory=1e9", "h100:8")
    )
    words = {
        "the result is written": "result",
        "rows are cut and joined": "rows",
        "boxes of each round": "boxes",
    }
    assert {words[each.what]: each.copied for each in here if each.what in words} == passes
    assert not words.keys() & {each.what for each in there}


def test_what_stages_take() -> None:
    """By hand: a message and its bytes; HBM meanwhile; copies; a collective of the library."""
    network = Network(topology_of("switch:4,bandwidth=1e9,latency=1e-6,memory=1e10"), 4)
    stages = (
        Sends("ring", ring),
        Sends("ring", ring, copied=5e7),
        Copies("pack", 1e7),
        Collective("all-to-all", 3_000_000, [[0, 1, 2]]),
    )
    made = Timeline(stages, IDS)
    cost = cost_of(made, network)
    assert [stage.seconds for stage in cost.stages[:3]] == pytest.approx([1.001e-3, 5e-3, 1e-3])
    assert cost.stages[3].seconds == pytest.approx(2e-6 + 2e-3)
    assert cost.seconds == pytest.approx(sum(stage.seconds for stage in cost.stages))
    assert cost.wire_bytes == made.wire_bytes == 4_000_000
    assert (cost.stages[0].link_bytes, cost.stages[0].messages) == (1e6, 1)


def test_copies_are_free_where_memory_is_not_said() -> None:
    network = Network(topology_of("switch:4,bandwidth=1e9,latency=1e-6"), 4)
    assert cost_of(Timeline((Copies("pack", 1e9),), IDS), network).seconds == 0


def emitted(plan: Plan, backend: str, folder: Path) -> ModuleType:
    path = folder / f"{backend}.py"
    path.write_text(alone(plan, backend))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RING = "torus:8,wrap=1,bandwidth=5e10,latency=1e-6,powers_of_two=1,ragged=512,memory=8.19e11"
CASES = [
    ("v5e:2x4", '[{"x", "y"}, {}]', '[{}, {"x", "y"}]', (1024, 2048)),
    ("v5e:2x4", '[{"x", "y"}, {}]', '[{}, {"y"}]', (1024, 2048)),
    ("v5e:2x4", '[{"x"}, {"y"}]', '[{"y"}, {"x"}]', (1024, 1024)),
    ("v5p:2x2x2", '[{"x"}, {"y"}]', '[{"y"}, {"x"}]', (1024, 1024)),
    ("v5p:2x2x2", '[{"x", "y"}, {}]', '[{}, {"x"}]', (1024, 2048)),
    ("v6e:2x4", '[{"y"}, {}]', '[{}, {"x"}]', (1024, 2048)),
    (RING, '[{"x", "y"}, {}]', '[{}, {"x", "y"}]', (1024, 2048)),
    (RING, '[{"x", "y"}, {}]', '[{}, {"y"}]', (1024, 2048)),
]


@pytest.mark.parametrize(("topology", "source", "target", "shape"), CASES)
def test_links_carry_what_the_tpu_module_sends(
    topology: str, source: str, target: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    """Round by round where the module forwards, at once where it sends directly."""
    pytest.importorskip("jax")
    plan = sw.plan(reshard(source, target, *shape), "direct", topology=topology)
    module = emitted(plan, "pallas_tpu", tmp_path)
    torus = topology_of(topology)
    assert isinstance(torus, Torus)
    made = registry.backend("pallas_tpu").timeline(plan)
    network = network_of(plan.reshard, topology)
    rounds = [stage for stage in made.stages if isinstance(stage, Sends)]
    expected = list(sent(module))
    assert len(rounds) == len(expected)
    for stage, pairs in zip(rounds, expected, strict=True):
        loads = network.total(stage.flows())
        assert max(busiest(pairs, torus).values()) == pytest.approx(float(loads.nbytes.max()))
    assert made.wire_bytes == module.WIRE_BYTES


def sent(module: Any) -> Iterator[Counter[tuple[int, int]]]:
    """Bytes from device to device, for each round, by what the module itself says."""
    size = np.dtype(module.jnp.dtype(module.DTYPE)).itemsize
    devices = range(len(module.SOURCE_IDS))
    if not hasattr(module, "SCHEDULE"):
        pairs: Counter[tuple[int, int]] = Counter()
        for me in devices:
            for piece in module._PROGRAM.moves.outgoing(me):
                if module.TARGET_IDS[piece.receiver] == module.SOURCE_IDS[me]:
                    continue
                widths = zip(piece.box[::2], piece.box[1::2], strict=True)
                pairs[me, piece.receiver] += size * math.prod(high - low for low, high in widths)
        yield pairs
        return
    program, slot = module._PROGRAM, module._PROGRAM.slot
    count = len(program.schedule.moves)  # the table may have more rows
    # In a row, after its ends: where a half begins, extents, and the offset's number if shared.
    columns = len(program.schedule.moves[0]) - 2 - program.shares
    tables = (program.table(device, program.order)[:count] for device in devices)
    moves = zip(*tables, strict=True)
    totals: defaultdict[int, Counter[tuple[int, int]]] = defaultdict(Counter)
    for (turn, way), made in zip(program.schedule.ways, moves, strict=True):
        for device, (_, _, *row) in enumerate(made):
            sent_of_it = row[int(program.schedule.halves) : columns]
            assert len(sent_of_it) <= 1  # of a slot along its first dimension, if not all
            sends = row[columns] if program.shares else 1
            nbytes = sends * size * math.prod((*sent_of_it, *slot.shape[len(sent_of_it) :]))
            there = module.hop(program.schedule.place(device), *way)
            totals[turn][device, int(program.schedule.device(there))] += nbytes
    yield from (totals[turn] for turn in sorted(totals))


def busiest(pairs: Counter[tuple[int, int]], torus: Torus) -> Counter[Any]:
    """Bytes on each link: (where it starts, along which axis, which way)."""
    loads: Counter[Any] = Counter()
    for (sender, receiver), nbytes in pairs.items():
        for link, share in route(sender, receiver, torus):
            loads[link] += nbytes * share
    return loads


def route(sender: int, receiver: int, torus: Torus) -> Iterator[tuple[Any, float]]:
    """The links of a transfer and the share of it that each carries, one axis after the other."""
    at, stop = (list(np.unravel_index(end, torus.dims, "F")) for end in (sender, receiver))
    for axis, extent in enumerate(torus.dims):
        up, down = stop[axis] - at[axis], at[axis] - stop[axis]
        ways = [(abs(up), 1 if up > 0 else -1, 1.0)]
        if torus.wrap[axis]:
            up, down = up % extent, down % extent
            ways = [(up, 1, 0.5), (down, -1, 0.5)] if up == down else [
                min((up, 1, 1.0), (down, -1, 1.0))
            ]  # fmt: skip
        for hops, step, share in ways:
            here = list(at)
            for _ in range(hops):
                yield (tuple(here), axis, step), share
                here[axis] = (here[axis] + step) % extent
        at[axis] = stop[axis]


def test_a_wrong_round_shows(tmp_path: Path) -> None:
    """A stage of half the bytes is not what the module sends."""
    pytest.importorskip("jax")
    plan = sw.plan(reshard('[{"x", "y"}, {}]', '[{}, {"x", "y"}]', 1024, 2048), "direct",
                   topology="v5e:2x4")  # fmt: skip
    pairs, *_ = sent(emitted(plan, "pallas_tpu", tmp_path))
    (stage, *_) = (
        stage
        for stage in registry.backend("pallas_tpu").timeline(plan).stages
        if isinstance(stage, Sends)
    )
    network = network_of(plan.reshard, "v5e:2x4")
    torus = topology_of("v5e:2x4")
    assert isinstance(torus, Torus)
    most = float(network.total(stage.flows()).nbytes.max())
    assert max(busiest(pairs, torus).values()) != pytest.approx(most / 2)


STRATEGIES = [("direct", "pallas_tpu"), ("direct", "jax_xla"), ("basis", "jax_xla")]


@pytest.mark.parametrize(("strategy", "backend"), STRATEGIES)
@pytest.mark.parametrize("topology", [None, "v5e:2x4"])
@pytest.mark.parametrize(
    ("source", "target", "shape"),
    [
        ('[{"x"}, {"y"}]', '[{"y"}, {"x"}]', (24, 17)),
        ('[{"x", "y"}, {}]', '[{}, {"y"}]', (512, 256)),
        ('[{"y"}, {}]', '[{}, {"x"}]', (100, 60)),
        ('[{}, {"x"}]', '[{"x", "y"}, {}]', (7, 1000)),
    ],
)
def test_one_number_for_bytes_on_the_wire(
    strategy: str,
    backend: str,
    topology: str | None,
    source: str,
    target: str,
    shape: tuple[int, ...],
    tmp_path: Path,
) -> None:
    """What a module states is what its stages bring to the busiest device."""
    pytest.importorskip("jax")
    plan = sw.plan(reshard(source, target, *shape), strategy, topology=topology)
    module = emitted(plan, backend, tmp_path)
    assert registry.backend(backend).timeline(plan).wire_bytes == module.WIRE_BYTES


def triton_stages(made: sw.Reshard, topology: str) -> list[str]:
    """The stages of a Triton module but those of the library."""
    plan = sw.plan(made, "direct", topology=topology)
    stages = registry.backend("triton_gpu").timeline(plan).stages
    return [stage.what for stage in stages if not isinstance(stage, Collective)]


def test_a_host_of_gpus_and_several() -> None:
    """Within a host shards are read where they are; between hosts tiles are packed and unpacked."""
    made = reshard('[{}, {"x"}, {}]', '[{}, {}, {"y"}]', 8, 64, 64)
    stages = {topology: triton_stages(made, topology) for topology in ("h100", "h100:2x4")}
    assert stages["h100"] == [
        "what leaves, to symmetric memory",
        "a barrier",
        "each device pulls its tiles",
        "a barrier",
    ]
    assert stages["h100:2x4"] == ["tiles are packed", "all_to_all_single", "tiles are unpacked"]


def test_between_hosts_tiles_are_packed_where_their_bytes_are_not_together() -> None:
    rows, columns = '[{"x", "y"}, {}]', '[{}, {"x", "y"}]'
    ways = (rows, columns), (columns, rows), (rows, "[{}, {}]")
    assert [triton_stages(reshard(*way, 64, 64), "h100:2x4") for way in ways] == [
        ["tiles are packed", "batch_isend_irecv"],
        ["batch_isend_irecv", "tiles are unpacked"],
        ["batch_isend_irecv"],
    ]
