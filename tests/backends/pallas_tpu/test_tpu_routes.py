"""Schedules of what devices forward over powers of two of hops: carried out, by brute force."""

from __future__ import annotations

import random

import numpy as np
import pytest

from shardwright.codegen.backends.pallas_tpu.routed.schedule import (
    RoutedSchedule,
    digits_of,
    fault,
    offsets_of,
    routed,
    spread,
)

SCHEDULES = {"routed": routed, "spread": spread}


def carried_out(
    schedule: RoutedSchedule, devices: int, *, spreads: bool
) -> list[dict[int, object]]:
    """What every device holds in the end: by place (sender, offset), or of whom it is the shard."""
    held: list[dict[int, object]] = [
        {0: me} if spreads else {n: (me, offset) for n, offset in enumerate(schedule.offsets)}
        for me in range(devices)
    ]
    for each in schedule.rounds:
        before = [dict(places) for places in held]
        leaves = {here for here, _ in each.moves}
        peers = each.hop.to(np.arange(devices))
        assert each.hop.back.to(peers).tolist() == list(range(devices))
        for me, peer in enumerate(peers.tolist()):
            for here, there in each.moves:
                assert there not in leaves, "a place is written to while it is read"
                held[peer][there] = before[me][here]
        assert len({there for _, there in each.moves}) == len(each.moves)
    return held


def random_offsets(seed: int) -> tuple[int, list[int]]:
    """A number of devices, a product of 2, 3 and 5, and offsets between them."""
    rng = random.Random(seed)
    devices = rng.choice([2, 3, 4, 5, 6, 8, 10, 12, 15, 16, 20, 24, 32, 48, 64])
    return devices, rng.sample(range(1, devices), rng.randint(1, devices - 1))


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("seed", range(60))
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
        schedule = routed(range(1, devices), digits_of(devices))
        assert schedule.places == devices - 1 + devices // 2
        assert len(schedule.carried) == devices // 2 * (devices.bit_length() - 1)
        assert len(spread(range(1, devices), digits_of(devices)).carried) == devices - 1


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
    for each in routed(range(1, 1 << bits), digits_of(1 << bits)).rounds:
        peer = each.hop.to(device)
        hops = np.abs(np.stack([axis[device] - axis[peer] for axis in axes]))
        assert ((hops > 0).sum(axis=0) == 1).all()
        assert ((hops & (hops - 1)) == 0).all()
