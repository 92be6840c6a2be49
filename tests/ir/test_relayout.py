"""The bytes of relayouts: against the oracle's sets of elements, and against plans of reshards."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import numpy as np
import pytest
from cases import random_reshard
from hypothesis import given, settings
from layouts import numbers_of
from random_relayouts import relayouts
from strategies import exactly, message

import shardwright as sw
from shardwright.ir.relayout import as_reshard
from shardwright.ir.stored import Stored


def elements(stored: Stored) -> dict[int, set[int]]:
    """Of each device, the numbers of the elements that it has in any buffer."""
    found: dict[int, set[int]] = {device: set() for device in stored.mesh.device_ids}
    for name in stored.buffers:
        for device, numbers in numbers_of(stored, name).items():
            found[device] |= {*numbers.reshape(-1).tolist()} - {-1}
    return found


@settings(max_examples=8, deadline=None)
@given(relayouts())
def test_bytes(relayout: sw.Relayout) -> None:
    check_bytes(relayout)


PLAIN = {
    "x[{a, b}]": '[{"a", "b"}, {}]',
    "x[{b}, {a}]": '[{"b"}, {"a"}]',
    "x[{a} balanced]": '[{"a"}, {}]',
    "x[{a} sized(4), {}]": '[{"a"}, {}]',
    "x[{a} listed(0, 4, 8)]": '[{"a"}, {}]',
    "x": "[{}, {}]",
    "x[{a} reversed]": None,
    "x[{a} table(1, 0)]": None,
    "x[{a} sized(5)]": None,
    "x[{a, b} balanced]": None,
    'x[{}, {"b":(1)3}]': None,
    "x 'r c -> c r'": None,
    "stack(0, x)": None,
    "stack(0, x, x)": None,
}


@pytest.mark.parametrize("layout", PLAIN)
def test_a_relayout_that_is_a_reshard(layout: str) -> None:
    """Is found by the boxes that devices have, however its cuts are written."""
    sides = (sw.Stored("a=2,b=3", {"x": (8, 6)}, each, "int8") for each in ("x[{}, {b}]", layout))
    found = as_reshard(sw.Relayout(*sides))
    assert (found and str(found.target)) == PLAIN[layout]


def test_a_reshard_of_a_view() -> None:
    """Both sides store the same factors in the same order, whatever they call them."""
    views = "x '(g=2 r) c -> c g r' [{a}]", "x '(h=2 rest) d -> d h rest' [{}, {}, {a}]"
    sides = [sw.Stored("a=2", {"x": (8, 6)}, each, "int8") for each in views]
    found = as_reshard(sw.Relayout(*sides))
    assert found is not None
    assert (found.shape, str(found.source)) == ((6, 2, 4), '[{"a"}, {}, {}]')
    assert str(found.target) == '[{}, {}, {"a"}]'
    for other in ("x[{a}]", "x '(g=4 r) c -> c g r' [{a}]", "x '(g=2 r) c -> g c r' [{a}]"):
        target = sw.Stored("a=2", {"x": (8, 6)}, other, "int8")
        assert as_reshard(sw.Relayout(sides[0], target)) is None


def test_a_relayout_that_no_reshard_is() -> None:
    """Dtypes that reshards do not have, and several tensors."""
    for tensors, dtype in (({"x": (8, 6)}, "complex64"), ({"x": (8, 6), "y": (8, 6)}, "int8")):
        sides = [sw.Stored("a=2", tensors, dict.fromkeys(tensors, "_"), dtype) for _ in range(2)]
        assert as_reshard(sw.Relayout(*sides)) is None


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(relayouts())
def test_bytes_of_more(relayout: sw.Relayout) -> None:
    check_bytes(relayout)


def check_bytes(relayout: sw.Relayout) -> None:
    plan = sw.plan(relayout)
    had, has = elements(relayout.source), elements(relayout.target)
    lacked = {device: numbers - had.get(device, set()) for device, numbers in has.items()}
    assert plan.received == {device: 2 * len(numbers) for device, numbers in lacked.items()}
    assert plan.total == sum(plan.sent.values()) == sum(plan.tensors.values())
    assert all(plan.sent[device] <= plan.total * bool(had[device]) for device in had)
    read = [number for numbers in lacked.values() for number in numbers]
    busiest = max(had, key=lambda device: alone(had, device, read))
    assert plan.sent_max >= 2 * alone(had, busiest, read)
    check_relays(plan)


def check_relays(plan: sw.RelayoutPlan) -> None:
    """Each target element is written once, and is the one that the oracle has there."""
    source, target = (
        [{d: n.reshape(-1) for d, n in numbers_of(side, name).items()} for name in side.buffers]
        for side in (plan.relayout.source, plan.relayout.target)
    )
    found = [{device: np.full(each.size, -1) for device, each in made.items()} for made in target]
    for relay in plan.relays:
        places = (relay.source, *relay.targets)
        read, *written = (
            functools.reduce(
                lambda before, loop, end=end: np.add.outer(  # type: ignore[misc]
                    before, loop.steps[end] * np.arange(loop.times)
                ),
                relay.loops,
                np.array(place.start),
            )
            for end, place in enumerate(places)
        )
        values = source[relay.source.buffer][relay.sender][read]
        for place, at in zip(relay.targets, written, strict=True):
            result = found[place.buffer][relay.receiver]
            assert (result[at] == -1).all()
            result[at] = values
    for made, wanted in zip(found, target, strict=True):
        for device, numbers in wanted.items():
            np.testing.assert_array_equal(made[device], numbers)


def test_holders_share() -> None:
    """Replicas send alike, whether receivers are fewer or more than they; overlaps too."""
    whole = sw.Stored("dp=4,tp=2", {"x": (24, 6)}, "x[{tp}]", "float32")
    for mesh, layout, sent in (
        ('<["one"=1], device_ids=[8]>', "x", 72),
        ('<["a"=3, "b"=2], device_ids=[8, 9, 10, 11, 12, 13]>', "x[{}, {a}]", 144),
    ):
        plan = sw.plan(sw.Relayout(whole, sw.Stored(mesh, {"x": (24, 6)}, layout, "float32")))
        assert {*plan.sent.values()} == {sent}
        check_relays(plan)
    overlap = sw.Stored("x=2", {"x": (3, 8)}, "x[{x} cover(2, 6, 3)]", "float32")
    other = sw.Stored('<["y"=1], device_ids=[2]>', {"x": (3, 8)}, "x", "float32")
    assert sw.plan(sw.Relayout(overlap, other)).sent == {0: 48, 1: 48}


def alone(had: dict[int, set[int]], device: int, read: Iterable[int]) -> int:
    """How often elements are read that one device alone has."""
    others = set().union(*(numbers for each, numbers in had.items() if each != device))
    return sum(number in had[device] - others for number in read)


@pytest.mark.parametrize("seed", range(12))
def test_a_reshard_is_a_relayout(seed: int) -> None:
    """Its least bytes are those of the plan."""
    reshard = random_reshard(seed)
    sides = (
        sw.Stored(side.mesh, {"x": reshard.shape}, {"x": layout(side, split)}, reshard.dtype)
        for side, split in (
            (reshard.source, reshard.source_split),
            (reshard.target, reshard.target_split),
        )
    )
    plan = sw.plan(sw.Relayout(*sides))
    assert plan.received_max == sw.plan(reshard).traffic.bound_received_max


def layout(sharding: sw.Sharding, split: str) -> str:
    """The text of a sharding as a layout."""
    nested = " nested" if split == "nested" else ""
    dims = (f"{{{', '.join(map(str, dim.axes))}}}{nested}" for dim in sharding.dims)
    return f"x[{', '.join(dims)}]"


def test_what_is_said() -> None:
    heads = {"q": (32, 16), "k": (8, 16), "v": (8, 16)}
    trainer = sw.Stored("tp=2", heads, dict.fromkeys(heads, "_[{tp}]"), "bfloat16")
    packed = sw.stack(0, q="tp", k='"tp":(1)2', v='"tp":(1)2')
    server = sw.Stored('<["tp"=4], device_ids=[2, 3, 4, 5]>', heads, packed, "bfloat16")
    plan = sw.plan(sw.Relayout(trainer, server))
    assert str(plan) == exactly(
        """
        received by the busiest device 512 bytes, the least possible
        sent by the busiest device     1,024 bytes
        received by all devices        2,048 bytes, of these
          q                                 1,024
          k                                   512
          v                                   512
        """
    )
    assert plan.to_dict()["bytes"] == {"received_max": 512, "sent_max": 1024, "total": 2048}
    assert message(lambda: sw.plan(sw.Relayout(trainer, server), topology="v5e:2x4")) == exactly(  # type: ignore[call-overload]
        """
        topology: a relayout takes no topology
        got: v5e:2x4
        expected: no topology, or a Reshard
        """
    )
    one = sw.Stored("tp=2", {"q": (32, 16)}, "q", "bfloat16")
    assert message(lambda: sw.Relayout(one, server)) == exactly(
        """
        target: both layouts must have the same tensors
        got: k (8, 16), v (8, 16)
        expected: no other tensors
        """
    )
