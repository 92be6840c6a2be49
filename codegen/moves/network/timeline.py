"""The stages of a module, which its backend states, and their time on a network.

    Sends       transfers at once, with HBM traffic: DMAs of a kernel, loads of a kernel from the
                memory of peers, or the transfers of a collective
    Collective  one collective of the platform's library (`moves/xla.py`), priced by `xla_cost`
    Copies      HBM traffic of a device while nothing is in flight

Stages run in sequence and do not overlap, except rounds in which devices forward data: such a round
counts only the time by which it delays the end (`forwarding.py`). Any other stage of Sends takes as
long as its busiest link or its HBM traffic, whichever is longer.

The wire bytes of a module are the bytes that the busiest device receives from others in all stages,
including padding and forwarded data. Plans, pages, modules and `compile` all report this number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, assert_never

import numpy as np

from shardwright.codegen.hardware.topology import Floats, Torus
from shardwright.codegen.moves.network.forwarding import Forwarding, Step
from shardwright.codegen.moves.network.links import Flows, Network
from shardwright.codegen.moves.xla import Collective
from shardwright.codegen.moves.xla_cost import FROM_ONE, seconds_of, sends_of
from shardwright.codegen.spec.hlo.received import received_by
from shardwright.ir.arrays import Integers


@dataclass(frozen=True)
class Sends:
    """Transfers that happen at once.

    `what`: a description. `flows`: a function that yields the transfers by device id, in arrays of
    bounded size. `copied`: the bytes of HBM that a device reads and writes meanwhile. `steps`: the
    steps of a round in which devices forward data that arrives in it or in the rounds directly
    before it. `starts`: the seconds to start the transfers, in addition to links and HBM. `by`:
    "messages" of a kernel; "loads" of a kernel, which are in flight from all peers at once, so a
    link adds its latency only once; or a "collective" of the platform's library.
    """

    what: str
    flows: Callable[[], Iterable[Flows]]
    copied: float = 0.0
    steps: tuple[Step, ...] = ()
    starts: float = 0.0
    by: Literal["messages", "loads", "collective"] = "messages"


@dataclass(frozen=True)
class Copies:
    """HBM traffic while nothing is in flight.

    `what`: a description. `nbytes`: the bytes that a device reads and writes. `leaving`: whether
    this happens only if the result leaves the program. `on_processor`: whether this happens only on
    JAX's CPU devices. `on_tpu`: whether this happens only on a TPU (see `passes.py`).
    """

    what: str
    nbytes: float
    leaving: bool = False
    on_processor: bool = False
    on_tpu: bool = False


Stage: TypeAlias = Sends | Collective | Copies


@dataclass(frozen=True)
class Timeline:
    """The stages of a module. `ids`: the device id at each position of its collectives."""

    stages: tuple[Stage, ...]
    ids: Integers

    def received(self) -> Floats:
        """Return the bytes that each device receives from other devices, by device id."""
        total: Floats = np.zeros(1 + int(self.ids.max()))
        for stage in self.stages:
            match stage:
                case Sends():
                    for part in stage.flows():
                        total = _added(total, part.receiver, part.weight)
                case Collective():
                    totals = received_by(stage.op, stage.ends, stage.nbytes, self.ids.size)
                    total = _added(total, self.ids, np.array(totals, dtype=np.float64))
                case Copies():
                    pass
                case _:
                    assert_never(stage)
        return total

    @property
    def wire_bytes(self) -> int:
        """The bytes that the busiest device receives from other devices."""
        return round(float(self.received().max()))


def _added(total: Floats, devices: Integers, weight: Floats) -> Floats:
    """Add `weight` to the entries of `devices` in `total`, which is indexed by device id."""
    size = max(total.size, 1 + int(devices.max(initial=0)))
    found: Floats = np.pad(total, (0, size - total.size))
    found += np.bincount(devices, weight, size)
    return found


@dataclass(frozen=True)
class StageCost:
    """The cost of one stage."""

    what: str  # the description of the stage
    seconds: float
    link_bytes: float | None  # the bytes on the busiest link; None if the library chooses routes
    messages: float | None  # the messages on the busiest link; None if the library chooses routes
    copied: float  # the bytes of HBM that a device reads and writes
    leaving: bool = False  # whether the stage runs only if the result leaves the program


@dataclass(frozen=True)
class TimelineCost:
    """The cost of a timeline on a network. `launch`: the seconds of a call outside its stages."""

    stages: tuple[StageCost, ...]
    wire_bytes: int
    launch: float = 0.0

    @property
    def moving(self) -> float:
        """The time of all stages in sequence, in seconds."""
        return sum(stage.seconds for stage in self.stages)

    @property
    def seconds(self) -> float:
        """The time of a call whose result leaves the program, in seconds. Plans are chosen by
        this time."""
        return self.launch + self.moving

    @property
    def used(self) -> float:
        """The time of a call whose result is used by the same program, in seconds."""
        return self.seconds - sum(stage.seconds for stage in self.stages if stage.leaving)

    @property
    def said(self) -> str:
        """`seconds` as text, with `used` if it differs in the first three digits."""
        leaves, used = f"{self.seconds:.3g}", f"{self.used:.3g}"
        return leaves if used == leaves else f"{leaves} (used: {used})"


def cost_of(timeline: Timeline, network: Network) -> TimelineCost:
    """Return the cost of a timeline on a network."""
    costs, launch = stage_costs(timeline, network), network.topology.launch
    return TimelineCost(costs, timeline.wire_bytes, launch)


def stage_costs(timeline: Timeline, network: Network) -> tuple[StageCost, ...]:
    """Return the cost of each stage that runs on the network's devices."""
    found, rounds = list[StageCost](), None
    on_tpu = isinstance(network.topology, Torus)
    for stage in timeline.stages:
        if isinstance(stage, Copies) and (
            (stage.on_processor and not network.is_processor) or (stage.on_tpu and not on_tpu)
        ):
            continue
        cost = _cost(stage, timeline.ids, network)
        if isinstance(stage, Sends) and stage.steps:
            rounds = rounds or Forwarding(network)
            cost = replace(cost, seconds=rounds.round(stage.steps, stage.copied))
        else:
            rounds = None
        starts = stage.starts if isinstance(stage, Sends) else 0.0
        found.append(replace(cost, seconds=cost.seconds + starts))
    return tuple(found)


def _cost(stage: Stage, ids: Integers, network: Network) -> StageCost:
    memory = network.topology.memory
    match stage:
        case Sends():
            return _sent(stage, network)
        case Collective() if stage.op in FROM_ONE:
            flows = (sends_of(stage, ids),)
            return _sent(Sends(stage.op, lambda: flows, by="collective"), network)
        case Collective():
            seconds = seconds_of((stage,), network, ids)
            return StageCost(f"{stage.op} of {len(stage.ends[0])}", seconds, None, None, 0.0)
        case Copies():
            seconds = stage.nbytes / memory if memory else 0.0
            seconds += network.topology.kernel if stage.nbytes else 0.0
            return StageCost(stage.what, seconds, 0.0, 0.0, stage.nbytes, stage.leaving)
        case _:
            assert_never(stage)


def _sent(stage: Sends, network: Network) -> StageCost:
    load = network.total(_nonempty(stage.flows()))
    if stage.by == "loads":
        load = replace(load, messages=np.minimum(load.messages, 1.0))
    busy = network.link_seconds(load)
    link = int(busy.argmax()) if busy.size else 0
    memory = network.topology.memory
    sent = network.collective_seconds(load) if stage.by == "collective" else float(busy[link])
    seconds = max(sent, stage.copied / memory if memory else 0.0)
    seconds += network.topology.kernel if stage.by == "loads" else 0.0
    found = float(load.nbytes[link]), float(load.messages[link]), stage.copied
    return StageCost(stage.what, seconds, *found)


def _nonempty(flows: Iterable[Flows]) -> Iterator[Flows]:
    return (part for part in flows if part.sender.size)
