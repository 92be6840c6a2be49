"""What forwarding takes, by hand: rounds overlap where links are idle, and wait where they must."""

from __future__ import annotations

import numpy as np
import pytest

from shardwright.codegen.hardware.presets import topology_of
from shardwright.codegen.moves.network.forwarding import Forwarding, Step
from shardwright.codegen.moves.network.links import Flows, Network
from shardwright.codegen.moves.network.timeline import Copies, Sends, Timeline, cost_of

SQUARE = Network(topology_of("torus:2x2,bandwidth=1e9,latency=1e-6,memory=1e12"), 4)
ROWS, COLUMNS = np.array([0, 1, 2, 3]), np.array([0, 1, 2, 3])


def along(axis: int, nbytes: float) -> Flows:
    """Every device to its neighbour along an axis."""
    return Flows(ROWS, COLUMNS ^ (1 << axis), np.full(4, nbytes))


def sends(*steps: Step, copied: float = 0.0) -> Sends:
    return Sends("round", lambda: tuple(step.flows for step in steps), copied, steps)


def seconds(*stages: Sends | Copies) -> list[float]:
    return [stage.seconds for stage in cost_of(Timeline(stages, ROWS), SQUARE).stages]


def test_rounds_over_other_links_overlap_unless_one_waits() -> None:
    first = Step(along(0, 1e6))
    beside, after = (Step(along(1, 1e6), come) for come in ((), (0,)))
    assert seconds(sends(first), sends(beside)) == pytest.approx([1.001e-3, 0])
    assert seconds(sends(first), sends(after)) == pytest.approx([1.001e-3, 1.001e-3])
    place = Step(along(1, 1e6), left=(0,))
    assert seconds(sends(first), sends(place)) == pytest.approx([1.001e-3, 1.001e-3])


def test_one_link_carries_one_thing_after_another() -> None:
    both = (Step(along(0, 1e6)), Step(along(0, 1e6)))
    assert seconds(sends(both[0]), sends(both[1])) == pytest.approx([1.001e-3] * 2)


def test_chunks_go_on_while_others_come() -> None:
    """In two chunks the second round ends half a round after the first; each chunk's message takes
    as long to come as one of all, and links take its start-up once."""
    chunks = [Step(along(0, 5e5), share=0.5) for _ in range(2)]
    later = [Step(along(1, 5e5), (number,), share=0.5) for number in range(2)]
    whole, half = seconds(sends(*chunks), sends(*later))
    assert whole == pytest.approx(1.0015e-3)
    assert half == pytest.approx(0.501e-3)


def test_memory_bounds_all_rounds_together() -> None:
    """A round that HBM keeps waiting leaves the next no more than what is left of it."""
    first, second = Step(along(0, 1e6)), Step(along(1, 1e6), (0,))
    found = seconds(sends(first, copied=1.5e9), sends(second, copied=1e8))
    assert found == pytest.approx([1.5e-3, 2.002e-3 - 1.5e-3])


def test_forwarding_begins_anew_after_something_else() -> None:
    first = Step(along(0, 1e6))
    found = seconds(sends(first), Copies("pack", 1e6), sends(first))
    assert found == pytest.approx([1.001e-3, 1e-6, 1.001e-3])


@pytest.mark.parametrize("seed", range(20))
def test_no_sooner_than_links_and_no_later_than_one_after_another(seed: int) -> None:
    rng = np.random.default_rng(seed)
    steps: list[Step] = []
    for number in range(12):
        come, left = (tuple(n for n in range(number) if rng.random() < 0.2) for _ in range(2))
        steps.append(
            Step(along(int(rng.integers(2)), float(rng.integers(1, 10)) * 1e5), come, left)
        )
    loads = [SQUARE.link_seconds(SQUARE.total((step.flows,))) for step in steps]
    took = Forwarding(SQUARE).round(steps, 0.0)
    assert np.sum(loads, axis=0).max() <= took * (1 + 1e-9)
    assert took <= sum(load.max() for load in loads) * (1 + 1e-9)
    alone = [Step(step.flows, tuple(range(n))) for n, step in enumerate(steps)]
    assert Forwarding(SQUARE).round(alone, 0.0) == pytest.approx(sum(each.max() for each in loads))
