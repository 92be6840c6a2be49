"""Topologies: texts, files, and the load of every link against routing hop by hop."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from strategies import exactly, message

from shardwright.codegen.hardware.chips import TOPOLOGIES, chip_of
from shardwright.codegen.hardware.presets import (
    check_devices,
    device_of,
    file_text,
    is_processor,
    name_of,
    topology_of,
)
from shardwright.codegen.hardware.rates import multiply_rate
from shardwright.codegen.hardware.topology import Hierarchical, Switch, Torus
from shardwright.codegen.moves.network.links import Flows, Network

TORI = [(4,), (5,), (2, 3), (4, 3), (4, 4), (3, 4, 2)]


def hops(torus: Torus, axis: int, start: int, stop: int) -> list[tuple[int, int, float]]:
    """The ways along an axis as (direction, hops, share of the transfer)."""
    size = torus.dims[axis]
    if not torus.wrap[axis]:
        return [(1 if stop > start else -1, abs(stop - start), 1.0)]
    up, down = (stop - start) % size, (start - stop) % size
    if up == down:
        return [(1, up, 0.5), (-1, down, 0.5)]
    return [(1, up, 1.0)] if up < down else [(-1, down, 1.0)]


def routed(torus: Torus, moved: list[tuple[int, int, float]]) -> np.ndarray:
    """What every link carries, by walking every transfer from device to device."""
    links = np.zeros((len(torus.dims), 2, torus.size))
    for sender, receiver, weight in moved:
        place = list(np.unravel_index(sender, torus.dims, "F"))
        goal = np.unravel_index(receiver, torus.dims, "F")
        for axis in range(len(torus.dims)):
            for direction, count, share in hops(torus, axis, place[axis], goal[axis]):
                at = list(place)
                for _ in range(count):
                    device = np.ravel_multi_index(at, torus.dims, order="F")
                    links[axis, int(direction < 0), device] += weight * share
                    at[axis] = (at[axis] + direction) % torus.dims[axis]
            place[axis] = goal[axis]
    return links.ravel()


@pytest.mark.parametrize("dims", TORI)
@pytest.mark.parametrize("many", [True, False])
def test_loads_of_a_torus_are_what_routing_gives(dims: tuple[int, ...], many: bool) -> None:
    rng = np.random.default_rng(0)
    for wrap in itertools.product([False, True], repeat=len(dims)):
        torus = Torus(dims, wrap, 1.0, 1.0)
        sender, receiver = rng.integers(0, torus.size, (2, 300 if many else 7))
        weight = rng.random(sender.size)
        expected = routed(torus, list(zip(sender, receiver, weight, strict=True)))
        np.testing.assert_allclose(
            torus.load(sender, receiver, weight[None], 0)[0], expected, atol=1e-9
        )
        table = torus.routes(0)[sender, receiver]
        np.testing.assert_allclose(weight @ table, expected, atol=1e-9)


def test_loads_of_switches_and_hosts() -> None:
    """Two transfers within a host, one across: only that one loads the hosts' links."""
    sender, receiver = np.array([0, 1, 1]), np.array([1, 0, 2])
    weight = np.array([[1.0, 2.0, 4.0]])
    ends = [1, 6, 0, 0, 2, 1, 4, 0]
    hosts = Hierarchical(2, 2, 1.0, 1.0, 1.0, 1.0)
    switch = Switch(None, 1.0, 1.0)
    assert switch.load(sender, receiver, weight, 4)[0].tolist() == ends
    assert hosts.load(sender, receiver, weight, 4)[0].tolist() == [*ends, 4, 0, 0, 4]
    for topology in (hosts, switch):
        table = topology.routes(4)[sender, receiver]
        np.testing.assert_allclose(
            weight @ table, topology.load(sender, receiver, weight, 4), atol=1e-9
        )


def test_all_pairs_in_closed_form() -> None:
    """Groups of devices that all send to each other, against the transfers one by one."""
    groups = np.array([[0, 1, 4, 6], [2, 3, 5, 7]])
    pairs = [(a, b) for group in groups for a in group for b in group if a != b]
    sender, receiver = np.array(pairs).T
    for topology in (Hierarchical(2, 4, 1.0, 1.0, 1.0, 1.0), Switch(8, 1.0, 1.0)):
        expected = topology.load(sender, receiver, np.ones((1, sender.size)), 8)[0]
        np.testing.assert_array_equal(topology.all_pairs(groups, 8), expected)


def test_only_powers_of_two_are_direct_on_v5e() -> None:
    """Three hops along an axis are relayed once, seven twice; others are one message."""
    line = topology_of("v5e:16x2")
    away = np.array([1, 3, 4, 7])  # 1, 3, 4, 7 hops along the first axis
    assert line.messages(np.zeros_like(away), away).tolist() == [1, 2, 1, 3]
    assert topology_of("v6e:16x2").messages(np.zeros_like(away), away).tolist() == [1] * 4


def test_a_ring_of_all_pairs_is_counted_by_hand() -> None:
    """On a ring of 4 every link carries 1 + 2/2 of each device's two ways: 4*4/8 shards."""
    ring = Network(Torus((4,), (True,), 1.0, 1.0), 4)
    pairs = np.array([(a, b) for a in range(4) for b in range(4) if a != b])
    load = ring.load(Flows(pairs[:, 0], pairs[:, 1], np.ones(12)))
    assert load.nbytes.tolist() == [2.0] * 8
    assert ring.seconds(load) == 4.0


@pytest.mark.parametrize(
    "text",
    [
        "switch",
        "switch:8,bandwidth=1e9,latency=3.5e-7",
        "torus:4x4,wrap=1x0",
        "switch:8,ragged=1",
        "v5e:2x4,ragged=0",
        "torus:3x5x7,bandwidth=123456789.5",
        "hierarchical:2x4,between_latency=1e-5",
        "v4:4x4x4",
        "tpu7x:2x2x1",
        "torus:2x4,core_bandwidth=1e12",
        "v5e:4x8",
        "v5p:8x8x8",
        "v6e:16x16",
        "h100",
        "h200:2x8",
    ],
)
def test_texts_read_back(text: str) -> None:
    topology = topology_of(text)
    assert topology_of(str(topology)) == topology


def test_presets() -> None:
    assert topology_of("v5e:8x16") == Torus(
        (8, 16), (False, True), 50e9, 1e-6, True, 512, memory=819e9
    )
    assert topology_of("v5p:4x4x8").wrap == (True, True, True)
    assert topology_of("v5p:2x2x4").wrap == (False, False, False)
    cores = Torus((2, 2, 2, 1), (False,) * 4, 45e9 / 2, 1e-6, False, 512, 600e9, 600e9)
    assert topology_of("v4:2x2x1") == cores
    assert topology_of("tpu7x:4x4x4").wrap == (False, True, True, True)
    own = {"ragged": 1, "memory": 3.35e12, "kernel": 2e-6, "collective": 6.6e-6}
    assert topology_of("h100") == Switch(8, 370e9, 0.6e-6, **own)
    assert topology_of("h100:4x8") == Hierarchical(4, 8, 370e9, 0.6e-6, 384e9, 2.7e-6, **own)


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "ours.toml"
    path.write_text('topology = "torus:4x2"\nwrap = [true, false]\nbandwidth = 1e10\nlatency = 1\n')
    assert topology_of(str(path)) == Torus((4, 2), (True, False), 1e10, 1.0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "v5e:8",
            """
            topology: a slice of v5e must have 2 sizes
            got: v5e:8
            expected: v5e:4x4
            """,
        ),
        (
            "torus:4x4,wrap=1",
            """
            topology: wrap must be 0 or 1 for each axis
            got: 1
            expected: 1x1
            """,
        ),
        (
            "switch:8,speed=1",
            """
            topology: a switch topology has no such key
            got: speed
            expected: one of bandwidth, latency, ragged, memory, launch, kernel, collective, multiplies, device
            """,  # noqa: E501
        ),
        (
            "switch:8,ragged=-1",
            """
            topology: ragged must be a number of bytes, or 0 if there is no such collective
            got: -1
            expected: 512
            """,
        ),
        (
            "switch:8,latency=0",
            """
            topology: latency must be a number of seconds
            got: 0
            expected: a number above 0, for example 4.5e10
            """,
        ),
        (
            "torus:4x0",
            """
            topology: the sizes of a topology must be integers of at least 1, joined by x
            got: 4x0
            expected: 4x4
            """,
        ),
        (
            "nothing.toml",
            """
            topology: cannot be read: No such file or directory
            got: nothing.toml
            expected: a TOML file
            """,
        ),
    ],
)
def test_what_is_no_topology(text: str, expected: str) -> None:
    assert message(lambda: topology_of(text)) == exactly(expected)


@pytest.mark.parametrize(
    "text",
    [
        "cpu:8,latency=1e-05,memory=5e9,launch=0.0003,multiplies=2e10",
        "v5e:2x4,bandwidth=3e10",
        "h100:4x8,between_latency=1.5e-05",
        "tpu7x:2x2x1,core_bandwidth=1e11",
        "switch",
        "v5p:2x2x2",
    ],
)
def test_a_file_is_written_as_it_reads(text: str, tmp_path: Path) -> None:
    given, path = topology_of(text), tmp_path / "ours.toml"
    path.write_text(file_text(given))
    assert topology_of(str(path)) == topology_of(str(given)) == given
    name = text.partition(":")[0]
    assert device_of(given) == ("" if name == "switch" else name)


def test_own_rates_of_multiplication() -> None:
    assert multiply_rate(topology_of("h100:8,launch=1e-5"), "bfloat16") == 989e12
    half = topology_of(f"h100:8,multiplies={67e12 / 2}")
    assert multiply_rate(half, "bfloat16") == 989e12 / 2
    assert multiply_rate(half, "float32") == 67e12 / 2
    assert multiply_rate(topology_of("switch:8,multiplies=5"), "int8") == 5
    assert is_processor(topology_of("cpu:8,multiplies=2e10"))


def test_a_topology_that_nobody_knows() -> None:
    names = "switch, torus, hierarchical, v4, v5e, v5p, v6e, tpu7x, h100, h200, cpu"
    assert message(lambda: topology_of("ring:4")).splitlines() == [
        "topology: no such topology",
        "got: ring:4",
        f"expected: one of {names}, or a file that ends in .toml",
    ]


def test_a_topology_with_too_few_devices() -> None:
    assert message(lambda: check_devices(topology_of("h100"), 16)) == exactly(
        """
        topology: the topology must have every device of the meshes
        got: h100: devices 0 to 7
        expected: a topology of at least 16 devices, for device 15
        """
    )


@pytest.mark.parametrize("text", ["switch", "h100:12x8", "torus:6x14", "v5e:8x16"])
def test_steps_routed_at_once_take_what_each_takes(text: str) -> None:
    """Beyond the topologies that have their routes in a table."""
    rng = np.random.default_rng(0)
    network = Network(topology_of(text), topology_of(text).size or 80)
    assert network.routes is None
    size, count = network.devices, 70
    sender, receiver = (np.array([rng.permutation(size) for _ in range(count)]) for _ in range(2))
    moving = np.where((sender != receiver) & (rng.random(sender.shape) < 0.5), 1.0, 0.0)
    moving[0] = 0.0
    found = network.seconds_each(sender, receiver, moving, 1e5)
    for s, r, moves, seconds in zip(sender, receiver, moving > 0, found, strict=True):
        flows = Flows(s[moves], r[moves], np.ones(int(moves.sum())))
        expected = network.collective_seconds(network.load(flows).scaled(1e5))
        assert seconds == pytest.approx(expected, rel=1e-12)


PLACES = """
import json, os
os.environ.update(JAX_PLATFORMS="cpu", ALLOW_MULTIPLE_LIBTPU_LOAD="1", TPU_SKIP_MDS_QUERY="1")
from jax.experimental.topologies import get_topology_desc
from shardwright.codegen.hardware.chips import TOPOLOGIES
for name in TOPOLOGIES:
    found = get_topology_desc(platform="tpu", topology_name=name).devices
    print(name, json.dumps([[d.id, d.core_on_chip, *d.coords] for d in found]))
"""


def test_devices_are_numbered_as_jax_numbers_those_of_a_tpu() -> None:
    """On every slice that the compiler knows; along the cores of a chip first, where it has two."""
    for package in ("jax", "libtpu"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    run = [sys.executable, "-c", PLACES]
    lines = subprocess.run(run, check=True, capture_output=True, text=True).stdout.splitlines()
    assert len(lines) == len(TOPOLOGIES)
    for line in lines:
        name, _, listed = line.partition(" ")
        rows = np.array(sorted(json.loads(listed)))
        torus, first = topology_of(name), 2 - (chip_of(name).devices == 2)
        assert isinstance(torus, Torus)
        assert rows[:, 0].tolist() == list(range(torus.size)), name
        at = torus.coordinates(rows[:, 0])
        np.testing.assert_array_equal(at, rows[:, first : first + len(torus.dims)], name)
        assert not rows[:, 1:first].any()
        assert not rows[:, first + len(torus.dims) :].any()


def test_cores_of_a_chip_have_a_link_of_their_own_and_share_those_between_chips() -> None:
    """Of a v4 slice of four chips: what its two cores send one another, and each to those of the
    next chip."""
    network = Network(topology_of("v4:2x2x1"), 8)
    cores = np.arange(8)
    beside = network.load(Flows(cores, cores ^ 1, np.full(8, 6e11)))
    assert network.seconds(beside) == pytest.approx(1.0, rel=1e-4)
    across = network.load(Flows(cores, cores ^ 2, np.full(8, 45e9)))
    assert network.seconds(across) == pytest.approx(2.0, rel=1e-4)
    ingest = network.topology.ingest_of(cores)
    assert ingest.tolist() == [6e11 + 45e9] * 8 == [network.topology.ingest] * 8


def test_a_mesh_in_another_order_is_said_by_its_device_ids() -> None:
    """Along the axis of two: neighbours in JAX's order; the other way round they are two apart."""
    network = Network(topology_of("v5p:2x4x1"), 8)
    ids = np.arange(8).reshape(4, 2)
    for along, distance in ((ids[:, 0], ids[:, 1]), 1), ((ids.ravel()[:4], ids.ravel()[4:]), 2):
        load = network.load(Flows(*along, np.ones(4)))
        assert load.nbytes.sum() == 4 * distance


def test_devices_of_a_processor() -> None:
    topology = topology_of("cpu:8")
    assert name_of(topology) == name_of(topology_of(str(topology))) == "cpu:8"
    assert is_processor(topology)
    assert not is_processor(topology_of("switch:8"))
    assert message(lambda: topology_of("cpu")) == (
        "topology: a processor must have one size\ngot: cpu\nexpected: cpu:8"
    )
