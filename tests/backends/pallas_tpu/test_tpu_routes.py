"""Schedules of what devices forward over powers of two of hops: carried out, by brute force."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from shardwright.codegen.backends.pallas_tpu.routed.grid import Grid
from shardwright.codegen.backends.pallas_tpu.routed.options import spreads
from shardwright.codegen.backends.pallas_tpu.routed.schedule import (
    Round,
    RoutedSchedule,
    fault,
    routed,
    spread,
)
from shardwright.codegen.backends.pallas_tpu.routed.turns import WHOLE, Freight
from shardwright.codegen.backends.pallas_tpu.routed.ways import (
    Digits,
    Numbering,
    Ways,
    added,
    digits_of,
    is_ring,
    offsets_of,
    steps,
)
from shardwright.codegen.hardware.torus import Torus


def own_ways(offsets: Iterable[int], digits: Digits, *, cut: bool = False) -> RoutedSchedule:
    """A schedule of pieces of one size."""
    pieces = [Freight(offset, 2, cut) for offset in offsets]
    return routed(pieces, Ways.on_one_axis(digits))


SCHEDULES: dict[str, Callable[[list[int], Digits], RoutedSchedule]] = {
    "routed": own_ways,
    "spread": spread,
}


def carried_out(
    schedule: RoutedSchedule, devices: int, *, spreads: bool
) -> list[dict[int, object]]:
    """What every device holds in the end: by place (sender, offset), or of whom it is the shard."""
    held: list[dict[tuple[int, int], object]] = [
        {(0, half): me for half in WHOLE}
        if spreads
        else {(n, half): (me, o) for n, o in enumerate(schedule.offsets) for half in WHOLE}
        for me in range(devices)
    ]
    for each in schedule.rounds:
        before = [dict(places) for places in held]
        leaves = {(move.here, half) for move in each.moves for half in move.halves}
        for hop, moves in each.sends:
            peers = hop.to(np.arange(devices))
            assert hop.back.to(peers).tolist() == list(range(devices))
            for (me, peer), move in product(enumerate(peers.tolist()), moves):
                for half in move.halves:
                    assert (move.there, half) not in leaves, "it is written to while it is read"
                    held[peer][move.there, half] = before[me][move.here, half]
        comes = [(move.there, half) for move in each.moves for half in move.halves]
        assert len({*comes}) == len(comes)
    assert all(places[n, 0] == places[n, 1] for places in held for n in schedule.arrives)
    return [{n: what for (n, half), what in places.items() if half} for places in held]


def random_offsets(seed: int) -> tuple[int, list[int]]:
    """A number of devices, a product of 2, 3 and 5, and offsets between them."""
    rng = random.Random(seed)
    devices = rng.choice([2, 3, 4, 5, 6, 8, 10, 12, 15, 16, 20, 24, 32, 48, 64])
    return devices, rng.sample(range(1, devices), rng.randint(1, devices - 1))


def random_ways(devices: int, rng: random.Random) -> Ways:
    """The digits of so many devices, some of them rings, along one to three axes."""
    digits = digits_of(devices)
    while rng.random() < 0.7 and len(digits) > 1:
        at = rng.randrange(len(digits) - 1)
        (stride, low), (_, high) = digits[at : at + 2]
        if (low * high).bit_count() == 1:
            digits = (*digits[:at], (stride, low * high), *digits[at + 2 :])
    axes = sorted(rng.randrange(3) for _ in digits)
    return Ways(digits, tuple(axes), tuple(rng.choice([1, 2, 4]) for _ in digits))


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("seed", range(20))
def test_everything_arrives(name: str, seed: int) -> None:
    """Every piece comes from the sender that its receiver expects it of."""
    devices, offsets = random_offsets(seed)
    digits = digits_of(devices)
    schedule = SCHEDULES[name](offsets, digits)
    assert fault(schedule, digits, spreads=name == "spread") == ""
    held = carried_out(schedule, devices, spreads=name == "spread")
    sender, receiver = (grid.ravel() for grid in np.indices((devices, devices)))
    between = offsets_of(sender, receiver, digits)
    for s, r, offset in zip(sender.tolist(), receiver.tolist(), between.tolist(), strict=True):
        if offset in offsets:
            place = schedule.arrives[schedule.offsets.index(offset)]
            assert held[r][place] == (s if name == "spread" else (s, offset))
    # Half as many places again as offsets; or one for every device on a way.
    most = devices if name == "spread" else len(offsets) + (len(offsets) + 1)
    assert schedule.places <= most


def test_memory_of_an_all_to_all_is_one_and_a_half_of_it() -> None:
    for devices in (4, 8, 64, 256):
        schedule = own_ways(range(1, devices), digits_of(devices))
        assert schedule.places == devices - 1 + devices // 2
        assert len(schedule.moves) == devices // 2 * (devices.bit_length() - 1)
        assert len(spread(range(1, devices), digits_of(devices)).moves) == devices - 1


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("seed", range(20))
def test_everything_arrives_on_rings_and_along_several_axes(name: str, seed: int) -> None:
    """In halves and as a whole."""
    rng = random.Random(seed)
    devices, offsets = random_offsets(seed)
    ways, is_spread = random_ways(devices, rng), name == "spread"
    if is_spread:
        orders = [ways.in_order(axes) for axes in (ways.orders()[-1], ways.orders()[-1][::-1])]
        schedule = spread(offsets, *orders[: 1 + seed % 2])
    else:
        pieces = [Freight(offset, rng.randint(1, 9), rng.random() < 0.5) for offset in offsets]
        schedule = routed(pieces, ways, rng.choice([0, 5]))
    assert fault(schedule, ways.digits, spreads=is_spread) == ""
    held = carried_out(schedule, devices, spreads=is_spread)
    sender, receiver = (grid.ravel() for grid in np.indices((devices, devices)))
    between = offsets_of(sender, receiver, ways.digits)
    for s, r, offset in zip(sender.tolist(), receiver.tolist(), between.tolist(), strict=True):
        if offset in offsets:
            place = schedule.arrives[schedule.offsets.index(offset)]
            assert held[r][place] == (s if is_spread else (s, offset))
    for each in schedule.rounds:
        for sent in each.sends:
            assert sent.hop.by in steps(sent.hop.extent)
            assert len({move.number for move in sent.moves}) == len(sent.moves) or is_spread


def busiest(schedule: RoutedSchedule, torus: Torus, ids: np.ndarray, size: int) -> float:
    """What the busiest link of each round carries, in all rounds together, of pieces of a size."""
    total = 0.0
    for each in schedule.rounds:
        load = np.zeros(2 * len(torus.dims) * torus.size)
        for hop, moves in each.sends:
            device = np.arange(ids.size)
            weight = np.full((1, ids.size), size / 2 * sum(len(move.halves) for move in moves))
            load += torus.load(ids[device], ids[hop.to(device)], weight, ids.size)[0]
        total += load.max()
    return total


@pytest.mark.parametrize(
    ("dims", "whole", "halves"),
    [
        ((16,), 8.0, 7.5),
        pytest.param((16, 16), 128.0, 64.0, marks=pytest.mark.slow),
        ((8, 16), 72.0, None),
        ((4, 8), 44.0, 28.0),
        ((2, 4), 8.0, 5.0),
        ((4, 4), 20.0, 10.0),
    ],
    ids=str,
)
def test_halves_of_gathers_load_links_of_all_axes_at_once(
    dims: tuple[int, ...], whole: float, halves: float | None
) -> None:
    """Shards on the busiest links of all rounds; at least so many come to a device over each."""
    torus = Torus(dims, tuple(size == 16 for size in dims), 1.0, 0.0, powers_of_two=True)
    grid = Grid(torus, np.arange(torus.size))
    found = list(spreads(tuple(range(1, torus.size)), grid.ways, halves=True))
    loads = [busiest(schedule, torus, grid.ids, 1) for schedule, _ in found]
    assert loads == [whole, *([halves] if halves else [])]
    assert [share for _, share in found] == [load / whole for load in loads]
    assert halves is None or halves >= (torus.size - 1) / sum(1 + wraps for wraps in torus.wrap)
    for schedule, _ in found:
        assert fault(schedule, grid.digits, spreads=True) == ""
    (*_, last) = found
    for number, each in enumerate(last[0].rounds if halves else ()):
        (sent, *sends) = each.sends
        (move, *moves) = sent.moves
        other = move._replace(halves=(1 - move.halves[0],))
        wrong = Round((sent._replace(moves=(other, *moves)), *sends))
        rounds = (*last[0].rounds[:number], wrong, *last[0].rounds[number + 1 :])
        assert fault(replace(last[0], rounds=rounds), grid.digits, spreads=True)


@pytest.mark.parametrize(
    ("dims", "most"),
    [((16,), 1.0), ((16, 16), 1.02), ((8, 16), 1.82), ((2, 4), 1.0), ((4, 4), 1.25)],
    ids=str,
)
def test_links_carry_little_more_than_if_all_were_sent_directly(
    dims: tuple[int, ...], most: float
) -> None:
    """All to all, on tori whose axes of 16 wrap around: the busiest links of all rounds together
    over the busiest of a direct exchange. Both ways and all axes are used at once."""
    torus = Torus(dims, tuple(size == 16 for size in dims), 1.0, 0.0, powers_of_two=True)
    ids = np.arange(torus.size)
    grid = Grid(torus, ids)
    assert grid.reaches()
    assert [extent for _, extent in grid.digits if is_ring(extent)] == [16] * dims.count(16)
    schedule = routed([Freight(offset, 2, True) for offset in ids[1:].tolist()], grid.ways)
    sender, receiver = (pairs.ravel() for pairs in np.indices((ids.size, ids.size)))
    direct = torus.load(sender, receiver, np.full((1, sender.size), 2.0), ids.size).max()
    assert busiest(schedule, torus, ids, 2) <= most * direct


@pytest.mark.parametrize(
    ("dims", "most"),
    [
        *(((4,), 1.0), ((2, 4), 1.0), ((4, 4), 1.04), ((4, 8), 1.02)),
        pytest.param((8, 16), 1.1, marks=pytest.mark.slow),
    ],
)
def test_along_lines_links_carry_what_they_would_directly(
    dims: tuple[int, ...], most: float
) -> None:
    """All to all where axes below 16 do not wrap around; every piece takes one of the shortest
    ways, and no device sends where there is none."""
    torus = Torus(dims, tuple(size == 16 for size in dims), 1.0, 0.0, powers_of_two=True)
    grid = Grid(torus, np.arange(torus.size), on_lines=True)
    numbering, count = grid.numbering, torus.size
    assert len(numbering.lines) == sum(2 < size < 16 for size in dims)
    assert grid.reaches()
    sender, receiver = (pairs.ravel() for pairs in np.indices((count, count)))
    places, over = numbering.place(sender), numbering.offsets(sender, receiver)
    senders = {offset: places[over == offset] for offset in np.unique(over).tolist() if offset}
    pieces = [Freight(k, 2, True, tuple(own.tolist())) for k, own in senders.items()]
    schedule = routed(pieces, grid.ways)
    assert fault(schedule, grid.digits, spreads=False) == ""
    ids, hops = numbering.by_place(grid.ids), np.zeros(2 * len(dims) * count)
    for _, hop, move, devices in schedule.made(grid.digits):
        ends = ids[devices], ids[hop.to(devices)]
        assert min(map(np.min, ends)) >= 0
        weight = np.full((1, devices.size), len(move.halves))
        hops += torus.load(*ends, weight, count)[0]
    direct = torus.load(sender, receiver, np.full((1, sender.size), 2.0), count)[0]
    assert hops.sum() == direct.sum()
    assert hops.max() <= most * direct.max()


def random_senders(seed: int) -> tuple[Grid, list[Freight]]:
    """A torus, and pieces that only some of its devices send."""
    rng = random.Random(seed)
    dims = rng.choice([(2, 4), (4, 4), (8,), (16,), (2, 2), (2, 16)])
    torus = Torus(dims, tuple(size == 16 for size in dims), 1.0, 0.0, powers_of_two=True)
    devices = range(torus.size)
    pieces = [
        Freight(
            offset,
            rng.randint(1, 9),
            rng.random() < 0.5,
            tuple(sorted(rng.sample(devices, rng.randint(1, torus.size)))),
        )
        for offset in rng.sample(devices[1:], rng.randint(1, torus.size - 1))
    ]
    return Grid(torus, np.arange(torus.size)), pieces


@pytest.mark.parametrize("seed", range(15))
def test_pieces_of_some_devices_arrive_and_share_places(seed: int) -> None:
    """Carried out device by device: nothing comes to a place that is in use or read, and a place
    more than the most that a device holds in any round is not needed often."""
    grid, pieces = random_senders(seed)
    schedule = routed(pieces, grid.ways, random.Random(seed).choice([0, 5]))
    assert fault(schedule, grid.digits, spreads=False) == ""
    held = [dict[tuple[int, int], tuple[int, int]]() for _ in grid.ids]
    for offset, place, senders in zip(
        schedule.offsets, schedule.starts, schedule.senders, strict=True
    ):
        for sender, half in product(senders, WHOLE):
            assert (place, half) not in held[sender]
            held[sender][place, half] = sender, offset
    for each in schedule.rounds:
        before = [dict(places) for places in held]
        for sent, me in product(each.sends, range(grid.ids.size)):
            peer = int(sent.hop.to(np.array(me)))
            for move, half in ((m, half) for m in sent.moves for half in m.halves):
                what = before[me].get((move.here, half))
                if what is not None and what[1] == schedule.offsets[move.number]:
                    assert (move.there, half) not in {*before[peer], *held[peer]}
                    held[peer][move.there, half] = what
                    del held[me][move.here, half]
    for offset, place, senders in zip(
        schedule.offsets, schedule.arrives, schedule.senders, strict=True
    ):
        receivers = added(np.array(senders), offset, grid.digits).tolist()
        for sender, receiver in zip(senders, receivers, strict=True):
            assert {held[receiver][place, half] for half in WHOLE} == {(sender, offset)}


@pytest.mark.parametrize("seed", range(10))
def test_places_in_use_are_not_shared(seed: int) -> None:
    """Two offsets of one device in one place at first; and what another comes to."""
    grid, pieces = random_senders(seed)
    pieces = [*pieces[:3], *(Freight(o) for o in (1, 3) if o not in {p.offset for p in pieces[:3]})]
    schedule = routed([replace(piece, senders=(0, 1)) for piece in pieces], grid.ways)
    assert fault(schedule, grid.digits, spreads=False) == ""
    together = replace(schedule, starts=(0,) * len(schedule.starts))
    assert fault(together, grid.digits, spreads=False) or len(pieces) == 1
    less = replace(schedule, places=schedule.places - 1)
    assert fault(less, grid.digits, spreads=False)


def test_digits_are_rings_only_where_neighbours_follow_one_another() -> None:
    """Of a ring in another order, of half of one, and of an axis that does not wrap around, digits
    stay twos; the last two are lines, if they are told apart, and so is what is a part of an axis,
    or every other place of it."""
    ring = Torus((16,), (True,), 1.0, 0.0, powers_of_two=True)
    line = Torus((16,), (False,), 1.0, 0.0, powers_of_two=True)
    ids = np.arange(16)
    assert Grid(ring, ids).digits == Grid(ring, ids[::-1]).digits == ((1, 16),)
    twos = digits_of(16)
    assert Grid(ring, ids ^ ids >> 1).digits == Grid(line, ids).digits == twos
    assert Grid(ring, ids[:8]).digits == digits_of(8)
    on_lines = {
        Grid(torus, own, on_lines=True).numbering
        for torus, own in ((ring, ids[:8]), (line, ids[:8]), (line, ids[8:]), (line, ids[::-2]))
    }
    assert on_lines == {Numbering(((1, 16),), (1,))}
    assert Grid(ring, ids, on_lines=True).numbering == Numbering(((1, 16),))
    turned = Grid(line, ids ^ ids >> 1, on_lines=True).numbering
    assert turned == Numbering(digits_of(16))


@pytest.mark.parametrize("seed", range(20))
def test_hops_are_powers_of_two_on_every_torus(seed: int) -> None:
    """Whichever axis of the torus which digit of a device's number is a place along."""
    rng = random.Random(seed)
    bits = rng.randint(1, 6)
    places = rng.sample(range(bits), bits)
    cuts = sorted(rng.choices(range(bits + 1), k=2))
    device = np.arange(1 << bits)

    def coordinate(own: list[int]) -> np.ndarray:
        return sum(((device >> bit & 1) << at for at, bit in enumerate(own)), 0 * device)

    axes = [
        coordinate(own) for own in (places[: cuts[0]], places[cuts[0] : cuts[1]], places[cuts[1] :])
    ]
    rounds = own_ways(range(1, 1 << bits), digits_of(1 << bits)).rounds
    for hop in (sent.hop for each in rounds for sent in each.sends):
        peer = hop.to(device)
        hops = np.abs(np.stack([axis[device] - axis[peer] for axis in axes]))
        assert ((hops > 0).sum(axis=0) == 1).all()
        assert ((hops & (hops - 1)) == 0).all()
