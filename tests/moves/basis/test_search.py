"""The search for basis steps: exact against one without estimates, quick, its bounds true."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from cases import all_pairs, describe, random_sharding
from simulate import check
from sweeps import swept

from shardwright.codegen.hardware.topology import Floats
from shardwright.codegen.moves import plan
from shardwright.codegen.moves.basis.bound import Estimates
from shardwright.codegen.moves.basis.graph import Basis, State, StateMove, product_of
from shardwright.codegen.moves.basis.guided import Guided
from shardwright.codegen.moves.basis.hosts import Hosts
from shardwright.codegen.moves.basis.permutes import Permutes
from shardwright.codegen.moves.basis.search import Search
from shardwright.codegen.moves.plan import network_of
from shardwright.codegen.operations.reshard_plan import _rounded_down
from shardwright.ir import AxisRef, InputError, Mesh, Reshard, Sharding
from shardwright.ir.arrays import Integers
from shardwright.ir.layout import Layout
from shardwright.ir.steps import MoveStep


@pytest.mark.parametrize(
    ("topology", "most"), [("switch", 1.1), ("v5e:4x4", 1.3), ("h100:2x8", 1.2)]
)
def test_the_led_search_is_nearly_exact(topology: str, most: float) -> None:
    """On 16 devices: never below the exact one, on the whole hardly above (on a torus several
    permutes to neighbours can be quicker than one, which it does not look for), and spared by it
    the exact one still is exact."""
    rng, mesh, above = random.Random(topology), Mesh({"x": 4, "y": 4}), []
    for _ in range(8):
        sides = (random_sharding(rng, mesh, 2) for _ in range(2))
        search = searched(Reshard((512, 384), "float32", *sides), topology)
        exact = search.run()
        led = Guided(search.basis, search.estimates, search.permutes, search.allowed).run()
        assert exact is not None
        assert led is not None
        assert led.seconds >= exact.bound
        again = searched(search.basis.reshard, topology)
        again.known = led
        found = again.run()
        assert found is not None
        assert found.seconds == pytest.approx(exact.seconds, rel=1e-6)
        above.append(led.seconds / exact.seconds if exact.seconds else 1.0)
    assert sum(above) / len(above) < most, above


def searched(reshard: Reshard, topology: str) -> Search:
    basis = Basis(reshard)
    estimates = Estimates(basis, network_of(reshard, topology))
    return Search(basis, estimates, Permutes(basis, estimates), lambda _before, _after: True)


def dijkstra(search: Search) -> float:
    """The cheapest path without any estimate, every permute priced."""
    best: dict[State, float] = {}
    queue = [(0.0, search.basis.start)]
    while queue:
        cost, state = heapq.heappop(queue)
        if state in best:
            continue
        best[state] = cost
        if state == search.basis.goal:
            return cost
        for move in search.basis.moves(state):
            heapq.heappush(queue, (cost + search.estimates.seconds(state, move), move.after))
        permuted = search.permutes.all_of(state)
        seconds = search.permutes.seconds(state, permuted.receivers).tolist()
        for after, step in zip(permuted.states, seconds, strict=True):
            heapq.heappush(queue, (cost + step, after))
    return math.inf


def in_another_order(reshard: Reshard) -> Reshard:
    """The target on the same devices in reverse, by twos."""
    mesh = reshard.target.mesh
    ids = [mesh.size - 1 - (device ^ 1) for device in mesh.device_ids]
    other = Mesh(mesh.axes, ids)
    return replace(reshard, target=Sharding(other, reshard.target.dims))


@pytest.mark.parametrize("topology", ["switch", "torus:2x4", "v5e:2x4", "hierarchical:2x4"])
def test_the_search_is_exact(topology: str) -> None:
    """Against a search of all shardings, small and large tensors, even and not."""
    rng = random.Random(topology)
    pairs = all_pairs({"x": 2, "y": 4}, (64, 96)) + all_pairs({"x": 2, "y": 3}, (3001, 4099))
    sampled = rng.sample(pairs, 25)
    for reshard in (*sampled, *map(in_another_order, sampled[:6])):
        search = searched(reshard, topology)
        path = search.run()
        assert path is not None
        assert path.seconds == pytest.approx(dijkstra(search), rel=1e-9), describe(reshard)
        assert path.bound == pytest.approx(path.seconds, rel=1e-4)
        assert path.bound <= path.seconds
        # No estimate is above what is left.
        left = path.seconds
        for move, cost in zip(path.steps, path.costs, strict=True):
            left -= cost
            assert search.estimates.ahead(move.after) <= left * (1 + 1e-9) + 1e-15


@pytest.mark.parametrize("topology", ["torus:12", "hierarchical:3x4", "hierarchical:4x3"])
def test_the_search_is_exact_where_primes_mix(topology: str) -> None:
    """Sub-axes of 2 and 3 in any order, hosts of some of them, permuted devices too."""
    rng, mesh = random.Random(topology), Mesh({"x": 12})
    for n in range(10):
        sides = (random_sharding(rng, mesh, 2) for _ in range(2))
        reshard = Reshard(rng.choice([(24, 36), (1200, 4800)]), "float32", *sides)
        search = searched(reshard if n % 3 else in_another_order(reshard), topology)
        path = search.run()
        assert path is not None
        assert path.seconds == pytest.approx(dijkstra(search), rel=1e-9), describe(reshard)


EXACT = (
    # Both links of an axis of two that wraps bring bytes; half around a ring, halves of messages.
    ("torus:2x2,wrap=1x1", range(4), (64, 64), '[{"x":(1)2}, {"x":(2)2}]', '[{}, {"x"}]'),
    ("torus:4", [0, 3, 1, 2], (120, 37), '[{}, {"x"}]', '[{"x":(1)2}, {"x":(2)2}]'),
    # So little latency that a tie must count less.
    ("switch,latency=1e-12,bandwidth=1e13", range(4), (2, 2), '[{}, {"x"}]', '[{"x"}, {}]'),
)


@pytest.mark.parametrize(("topology", "ids", "shape", "source", "target"), EXACT)
def test_the_search_is_exact_on_odd_links(
    topology: str, ids: Sequence[int], shape: tuple[int, ...], source: str, target: str
) -> None:
    sides = Mesh({"x": 4}).sharding(source), Mesh({"x": 4}, ids).sharding(target)
    search = searched(Reshard(shape, "float32", *sides), topology)
    path = search.run()
    assert path is not None
    assert path.seconds == pytest.approx(dijkstra(search), rel=1e-9)
    assert path.bound <= path.seconds <= path.bound * (1 + 1e-4)


def test_a_search_of_some_shardings_slices_before_it_permutes() -> None:
    """Hosts, and more shardings than are all looked at."""
    mesh = Mesh({"x": 4, "y": 4, "z": 4})
    source = mesh.sharding('[{"y", "z":(1)2, "x":(1)2}, {}, {}]')
    target = mesh.sharding('[{"x":(2)2, "y", "z"}, {}, {}]')
    reshard = Reshard((4096, 4096, 4096), "float32", source, target)
    assert plan(reshard, "basis", topology="h100:8x8").ops == "slice, permute"


@pytest.mark.parametrize("axes", [{"x": 2, "y": 4}, {"x": 12}, {"x": 6, "y": 5}])
def test_permutes_lead_to_every_sharding_with_as_many_parts(axes: dict[str, int]) -> None:
    """Against all shardings that slices make, over any atoms."""
    sharding = Mesh(axes).sharding("[{}, {}]")
    search = searched(Reshard((60, 60), "int8", sharding, sharding), "switch")
    found, ahead = {search.basis.start}, [search.basis.start]
    while ahead:
        for move in search.basis.slices(ahead.pop()):
            if move.after not in found:
                found.add(move.after)
                ahead.append(move.after)
    for state in found:
        alike = [other for other in found if product_of(other) == product_of(state)]
        assert search.permutes.all_of(state).states == tuple(sorted(alike))


def test_what_hosts_lack() -> None:
    """Against sets of elements: what all devices of a host shall hold, less what any of them does;
    on devices in any order, not all of which a host needs to have."""
    rng, topology = random.Random(0), "hierarchical:3x4"
    for _ in range(20):
        ids = rng.sample(range(12), 8)
        mesh = Mesh({"x": 2, "y": 4}, ids)
        source, target = (random_sharding(rng, mesh, 2) for _ in range(2))
        reshard = Reshard((8, 8), "int8", source, target)
        hosts: dict[int, list[set[tuple[int, int]]]] = {}
        for position, device in enumerate(ids):
            held, wanted = hosts.setdefault(device // 4, [set(), set()])
            for side, cells in ((source, held), (target, wanted)):
                box = Layout.of(side, (8, 8), "flat").box(position)
                cells.update(itertools.product(*(range(low, high) for low, high in box)))
        lacks = max(len(wanted - held) for held, wanted in hosts.values())
        network = network_of(reshard, topology)
        basis = Basis(reshard)
        found = Hosts(basis, network.topology, (np.array(ids),)).seconds(basis.start)  # type: ignore[arg-type]
        figures = network.topology.between_latency, network.topology.between_bandwidth  # type: ignore[union-attr]
        assert found == pytest.approx(figures[0] + lacks / figures[1] if lacks else 0.0)


@pytest.mark.parametrize(
    ("source", "target", "op"),
    [
        ('[{"x"}, {}]', "[{}, {}]", "all_gather"),
        ('[{}, {}], unreduced={"x"}', '[{"x"}, {}]', "reduce_scatter"),
        ('[{}, {}], unreduced={"x"}', "[{}, {}]", "all_reduce"),
    ],
)
@pytest.mark.parametrize(
    ("extent", "topology"),
    [
        *itertools.product((16, 4096), ("switch", "h100:1x8", "torus:8")),
        *itertools.product((4096,), ("v5e:2x4", "h100:2x4")),
    ],
)
def test_a_tie_is_one_step(extent: int, source: str, target: str, op: str, topology: str) -> None:
    """What one collective does is not cut into three of two, be it latency or bytes that count."""
    mesh = Mesh({"x": 8})
    reshard = Reshard((extent, extent), "float32", mesh.sharding(source), mesh.sharding(target))
    assert plan(reshard, "basis", topology=topology).ops == op


FOUR_FACTORS = [
    ((2, 2, 2, 2), "switch"),
    ((2, 2, 2, 2), "torus:4x4"),
    ((2, 2, 2, 2), "v5e:4x4"),
    ((2, 2, 2, 2), "v5p:2x2x4"),
    ((2, 2, 2, 2), "h100:2x8"),
    ((2, 2, 2, 3), "h100:3x8"),
    ((2, 2, 3, 3), "torus:6x6,powers_of_two=1"),
    ((2, 2, 3, 5), "torus:6x10"),
    ((2, 3, 5, 7), "torus:14x15"),
]


@pytest.mark.parametrize(("sizes", "topology"), FOUR_FACTORS)
def test_the_exact_search_is_led(sizes: tuple[int, ...], topology: str) -> None:
    """Four prime factors, rank 3: of 685 shardings, few are looked on from."""
    mesh = Mesh(dict(zip("xyzw", sizes, strict=True)))
    rng, counts = random.Random(5), []
    for _ in range(9):
        sides = (random_sharding(rng, mesh, 3) for _ in range(2))
        search = searched(Reshard((512, 256, 128), "float32", *sides), topology)
        led = Guided(search.basis, search.estimates, search.permutes, search.allowed)
        search.known = led.run()
        search.run()
        counts.append(len(search.expanded))
    assert sum(counts) < 0.3 * 9 * 685, counts


USUAL = (
    ((4, 4), "v5e:4x4", 7500),
    ((2, 8), "h100:2x8", 16300),
    ((8, 8), "v5p:4x4x4", 6100),
    ((16, 8), "h100:16x8", 9900),
    ((4, 4, 8), "v5p:4x4x8", 13200),
)


@pytest.mark.parametrize(("sizes", "topology", "most"), USUAL)
def test_usual_searches_price_few_steps(
    sizes: tuple[int, ...], topology: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two or three axes of powers of two: what takes a search's time is counted, whatever else
    runs, half as much again as it is now at most."""
    priced: list[int] = []
    one, several = Estimates.seconds, Permutes.seconds

    def counted(self: Estimates, state: State, move: StateMove) -> float:
        priced[-1] += 1
        return one(self, state, move)

    def counted_each(self: Permutes, state: State, receivers: Integers) -> Floats:
        priced[-1] += len(receivers)
        return several(self, state, receivers)

    monkeypatch.setattr(Estimates, "seconds", counted)
    monkeypatch.setattr(Permutes, "seconds", counted_each)
    mesh, rng = Mesh(dict(zip("xyz", sizes, strict=False))), random.Random(0)
    for _ in range(6):
        sides = (random_sharding(rng, mesh, 3) for _ in range(2))
        priced.append(0)
        plan(Reshard((512, 256, 128), "float32", *sides), "basis", topology=topology)
    assert sum(priced) < most, priced


BOUNDED = (
    # Memory for all of the tensor once more, and gathering it first, is a step less.
    ("switch,latency=1e-6", {"x": 6, "y": 2}, (100, 100, 1), '[{"x":(3)2, "y"}, {}, {}]',
     '[{}, {"x"}, {}]', 12),
    ("torus:8", {"x": 4, "y": 2}, (17, 1001, 100), '[{}, {"y", "x"}, {}]',
     '[{"x":(1)2}, {}, {"y", "x":(2)2}]', 8),
)  # fmt: skip


def least_found(reshard: Reshard, topology: str) -> tuple[float, float]:
    """The largest bound of all basis plans that there are with some limits of memory and without
    one, and the seconds of the quickest."""
    found = []
    for limit in (None, 1000, reshard.nbytes, 2 * reshard.nbytes, 3 * reshard.nbytes, 1 << 40):
        with contextlib.suppress(InputError):
            found.append(plan(reshard, "basis", topology=topology, memory_limit=limit).prediction)
    said = [(each.least_seconds, each.seconds) for each in found if each is not None]
    return max(least for least, _ in said if least is not None), min(took for _, took in said)


@pytest.mark.parametrize(("topology", "axes", "shape", "source", "target", "count"), BOUNDED)
def test_a_bound_is_one_whatever_the_memory(
    topology: str,
    axes: dict[str, int],
    shape: tuple[int, ...],
    source: str,
    target: str,
    count: int,
) -> None:
    turned = Mesh(axes, random.Random(count).sample(range(count), count))
    sides = Mesh(axes).sharding(source), turned.sharding(target)
    least, seconds = least_found(Reshard(shape, "float32", *sides), topology)
    assert 0 < least <= seconds


SEEDS = (*range(8), *swept(range(100, 252), 4))


@pytest.mark.parametrize("seed", SEEDS)
def test_bounds_of_random_reshards(seed: int) -> None:
    """A random reshard, sums too, on a random topology: no plan beats the bound of another."""
    rng = random.Random(seed)
    axes = rng.choice([{"x": 2, "y": 4}, {"x": 12}, {"x": 6, "y": 2}, {"x": 4, "y": 4}, {"x": 30},
                       {"x": 4, "y": 4, "z": 2}, {"x": 16, "y": 4}])  # fmt: skip
    mesh, rank = Mesh(axes), rng.randint(1, 3)
    order = range(mesh.size) if rng.random() < 0.7 else rng.sample(range(mesh.size), mesh.size)
    source = random_sharding(rng, mesh, rank)
    free = mesh.refs_free_of(source.used())
    if free and rng.random() < 0.3:
        source = Sharding(mesh, source.dims, unreduced=tuple(rng.sample(free, 1)))
    target = random_sharding(rng, Mesh(axes, order), rank)
    shape = tuple(rng.choice([1, 3, 8, 17, 64, 100, 1001]) for _ in range(rank))
    reshard = Reshard(shape, "float32", source, target)
    n = mesh.size
    topology = rng.choice(["switch,latency=1e-6", f"torus:{n}", f"hierarchical:2x{n // 2}"])
    least, seconds = least_found(reshard, topology)
    assert least <= seconds, f"{topology}, {describe(reshard)}"


def test_a_printed_bound_is_rounded_down() -> None:
    assert [_rounded_down(s) for s in (1.23999e-5, 2.0, 0.0)] == ["1.23e-05", "2", "0"]


def test_large_meshes_say_what_is_proven() -> None:
    """Twelve prime factors: source and target are cut as they are; the bound is below."""
    mesh = Mesh({"x": 16, "y": 16, "z": 16})
    source, target = mesh.sharding('[{"x"}, {"y"}, {}]'), mesh.sharding('[{"y"}, {}, {"x"}]')
    made = plan(Reshard((512, 512, 512), "int8", source, target), "basis")
    assert made.prediction is not None
    assert 0 < made.prediction.least_seconds < made.prediction.seconds  # type: ignore[operator]
    assert all(isinstance(step, MoveStep) for step in made.steps)


def test_many_axes_find_a_way() -> None:
    """Eight axes are too many shardings to look at them all."""
    names = "abcdefgh"
    mesh = Mesh(dict.fromkeys(names, 2))
    order = list(itertools.chain(names[::2], names[1::2]))
    dims = [", ".join(f'"{n}"' for n in part) for part in (names[:4], names[4:])]
    back = [", ".join(f'"{n}"' for n in part) for part in (order[:3], order[3:])]
    source = mesh.sharding("[" + ", ".join(f"{{{d}}}" for d in dims) + "]")
    target = mesh.sharding("[" + ", ".join(f"{{{d}}}" for d in back) + "]")
    made = plan(Reshard((256, 256), "int8", source, target), "basis")
    check(made)
    assert AxisRef("a") in mesh.refine([])
