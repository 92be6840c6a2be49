"""The load of a TPU module's busiest link over all rounds, relative to that of a direct exchange.

Modules forward tiles on a v5e, where devices can send directly only over a power of two of links,
and on other chips if the model predicts less time. XLA's plan is the compiled identity, if JAX
accepts the reshard; the model takes the best algorithm for each collective. The reshards are the
corpus and random ones on eight chips of three generations, and common ones on 16 x 16. The model is
`codegen/hardware/torus.py`; the tables are written to `link_loads.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean

import shardwright as sw
from bench.peers import by_xla
from bench.reasons import busiest
from bench.reshards import corpus, random_reshards
from bench.verdicts import asked
from shardwright.codegen import registry
from shardwright.codegen.backends.pallas_tpu.strategy import choices, preferred
from shardwright.codegen.backends.pallas_tpu.terms import moved
from shardwright.codegen.moves.compare import why_not_xla
from shardwright.codegen.moves.network.flows import flows
from shardwright.codegen.moves.network.links import Network
from shardwright.codegen.moves.network.timeline import Sends, Stage, cost_of
from shardwright.codegen.moves.plan import network_of
from shardwright.codegen.moves.xla import XlaCollectives
from shardwright.ir.errors import InputError
from shardwright.ir.plan import direct_of

RESULT = Path(__file__).parent / "link_loads.md"
TOPOLOGIES = ("v5e:2x4", "v5p:2x2x2", "v6e:2x4")
RANDOM = 50
LEAST = 1 << 20
"""Reshards on up to 8 devices are left out if the busiest link of their direct exchange carries
fewer bytes than this, most of which would be padding of memory tiles."""
LARGE = ("v5e:16x16", "v6e:16x16")
FLAT, GRID = sw.Mesh({"x": 256}), sw.Mesh({"x": 16, "y": 16})
SIDES = {
    "all to all over 256": (FLAT, '[{"x"}, {}]', '[{}, {"x"}]'),
    "all to all over a ring of 16": (GRID, '[{"x"}, {}]', '[{}, {"x"}]'),
    "all to all over both rings": (GRID, '[{"x", "y"}, {}]', '[{}, {"x", "y"}]'),
    "gather over 256": (FLAT, '[{"x"}, {}]', "[{}, {}]"),
    "transpose": (GRID, '[{"x"}, {"y"}]', '[{"y"}, {"x"}]'),
}
SHAPE = (8192, 8192)
# Loads in MiB and predicted microseconds of earlier modules, from the runs of these tables on
# 2026-11-24. In those modules gathers moved whole shards, by binary digits only, in rounds one
# after another, so the loads of the rounds' busiest links add up.
BEFORE = {
    ("all to all over 256", "v5e:16x16"): (1.00, 608),
    ("all to all over a ring of 16", "v5e:16x16"): (16.00, 457),
    ("all to all over both rings", "v5e:16x16"): (1.00, 608),
    ("gather over 256", "v5e:16x16"): (68.00, 2547),
    ("transpose", "v5e:16x16"): (5.50, 151),
    ("all to all over 256", "v6e:16x16"): (1.00, 528),
    ("all to all over a ring of 16", "v6e:16x16"): (16.00, 210),
    ("all to all over both rings", "v6e:16x16"): (1.00, 528),
    ("gather over 256", "v6e:16x16"): (68.00, 1341),
    ("transpose", "v6e:16x16"): (3.75, 47),
}
BEFORE_TURNED = {
    ("transpose", "v5p:2x2x4"): (16.00, 200),
    ("axes in the other order", "v5p:2x2x4"): (16.00, 200),
    ("other axis, replicated", "v5p:2x2x4"): (48.00, 627),
    ("transpose", "v5p:4x4x4"): (4.00, 58),
    ("axes in the other order", "v5p:4x4x4"): (4.00, 58),
    ("other axis, replicated", "v5p:4x4x4"): (21.00, 309),
    ("transpose", "v6e:4x4"): (16.00, 217),
    ("axes in the other order", "v6e:4x4"): (16.00, 217),
    ("other axis, replicated", "v6e:4x4"): (48.00, 706),
    ("transpose", "v6e:8x8"): (19.00, 239),
    ("axes in the other order", "v6e:8x8"): (19.00, 239),
    ("other axis, replicated", "v6e:8x8"): (84.00, 1053),
    ("transpose", "v6e:16x16"): (5.50, 91),
    ("axes in the other order", "v6e:16x16"): (5.50, 91),
    ("other axis, replicated", "v6e:16x16"): (30.00, 452),
}
# Cases in which one order of axes leaves links idle.
TURNS = {
    "v5p:2x2x4": sw.Mesh({"x": 4, "y": 4}),
    "v5p:4x4x4": sw.Mesh({"x": 8, "y": 8}),
    "v6e:4x4": sw.Mesh({"x": 4, "y": 4}),
    "v6e:8x8": sw.Mesh({"x": 8, "y": 8}),
    "v6e:16x16": GRID,
}
TURNED = {
    "transpose": ('[{"x"}, {"y"}]', '[{"y"}, {"x"}]'),
    "axes in the other order": ('[{"x", "y"}, {}]', '[{"y", "x"}, {}]'),
    "other axis, replicated": ('[{"x"}, {}]', '[{"y"}, {}]'),
}
BEFORE_OF_SMALL = {"v5e:2x4": "1.16, 2.11", "v5p:2x2x2": "0.50, 0.50", "v6e:2x4": ""}


@dataclass(frozen=True)
class LinkLoad:
    """One module. `rounds`: the number of its rounds; `carried`: the bytes on its busiest link in
    all rounds; `direct`, `xla`: the same for a direct exchange and for XLA's plan, or None;
    `seconds`: the predicted time."""

    name: str
    topology: str
    rounds: int
    carried: float
    direct: float
    xla: float | None
    seconds: float


def compiled(reshards: dict[str, sw.Reshard]) -> dict[str, XlaCollectives]:
    """Return XLA's plans of the reshards that JAX accepts, by name."""
    even = {name: each for name, each in reshards.items() if why_not_xla(each) is None}
    return dict(zip(even, by_xla(list(even.values())), strict=True))


def together(stages: Iterable[Stage], network: Network) -> float:
    """Return the bytes on the busiest link over all rounds together, because rounds do not wait for
    one another."""
    sends = (stage for stage in stages if isinstance(stage, Sends))
    parts = [part for stage in sends for part in stage.flows() if part.sender.size]
    return float(network.total(parts).nbytes.max(initial=0.0)) if parts else 0.0


def loads(
    reshards: dict[str, sw.Reshard], xla: dict[str, XlaCollectives], topology: str
) -> Iterator[LinkLoad]:
    """Yield the link loads of each reshard that has a module on the topology and moves enough
    bytes."""
    backend = registry.backend("pallas_tpu")
    for name, reshard in reshards.items():
        try:
            made = sw.plan(reshard, "direct", topology=topology)
            backend.refuse(made)
        except InputError:  # missing devices, or a device order that follows no axis
            continue
        network, timeline = network_of(reshard, topology), backend.timeline(made)
        load = network.total(flows(made.exchange, reshard.itemsize)).nbytes.max()
        if load < LEAST and len(reshard.source.mesh.device_ids) <= 8:
            continue
        cost = cost_of(timeline, network)
        sends = [stage for stage in timeline.stages if isinstance(stage, Sends)]
        carried = together(sends, network)
        theirs = busiest(reshard, xla[name], network) if name in xla else None
        yield LinkLoad(
            name, topology, len(sends), carried, float(load), theirs, float(cost.seconds)
        )


def summary(topology: str, found: Iterable[LinkLoad]) -> str:
    """Return a line for a topology: the loads of modules that forward and of modules that send
    directly, both relative to a direct exchange, and the loads of all modules relative to XLA's
    plan."""
    listed = list(found)
    cells = [topology]
    for some in ([one for one in listed if one.rounds > 1], [o for o in listed if o.rounds == 1]):
        ratios = [one.carried / one.direct for one in some]
        cells += [str(len(some)), _mean(ratios)]
    cells.insert(3, BEFORE_OF_SMALL[topology])
    over = [one.carried / one.xla for one in listed if one.xla]
    cells += [str(len(over)), _mean(over), str(sum(each <= 1 + 1e-9 for each in over))]
    return f"| {' | '.join(cells)} |"


def _mean(ratios: list[float]) -> str:
    return f"{geometric_mean(ratios):.2f}, {max(ratios):.2f}" if ratios else ""


def large() -> Iterator[str]:
    """Yield a line for each case on 16 x 16."""
    cases = {
        name: sw.Reshard(SHAPE, "bfloat16", mesh.sharding(source), mesh.sharding(target))
        for name, (mesh, source, target) in SIDES.items()
    }
    xla = compiled(cases)
    for one in (one for topology in LARGE for one in loads(cases, xla, topology)):
        before, took = BEFORE.get((one.name, one.topology), (None, ""))
        cells = [one.name, one.topology, *_mib(one.carried, one.direct, one.xla)]
        cells += [f"{before:.2f}" if before else "", f"{1e6 * one.seconds:.0f}", str(took)]
        yield f"| {' | '.join(cells)} |"


def turned() -> Iterator[str]:
    """Yield a line for each case in which tiles may change axes on their way. It has the load of
    the busiest link and the seconds of the fastest form in which they do, and of the form that
    sends directly."""
    for topology, mesh in TURNS.items():
        for name, (source, target) in TURNED.items():
            sides = mesh.sharding(source), mesh.sharding(target)
            made = direct_of(
                sw.plan(sw.Reshard(SHAPE, "bfloat16", *sides), "direct", topology=topology)
            )
            network, every = network_of(made.reshard, topology), made.once(choices)
            turns = [(each.seconds, each) for each in every if each.straight is not None]
            if not turns:
                continue
            seconds, best = min(turns, key=lambda pair: pair[0])
            stages = tuple(best.form.stages(best.figures, moved(made), reduces=False))
            load = network.total(flows(made.exchange, made.reshard.itemsize)).nbytes.max()
            carried = together(stages, network)
            straight = best.straight or 0.0
            taken = "turned" if preferred(every).straight is not None else "direct"
            times = [f"{1e6 * each:.0f}" for each in (straight, seconds)]
            before, took = BEFORE_TURNED[name, topology]
            cells = [name, topology, *_mib(float(load), carried), f"{before:.2f}", *times]
            cells += [str(took), taken]
            yield f"| {' | '.join(cells)} |"


def _mib(*values: float | None) -> list[str]:
    return ["" if value is None else f"{value / 2**20:.2f}" for value in values]


def each_of(found: Iterable[LinkLoad]) -> Iterator[str]:
    for one in found:
        cells = [one.name, one.topology, str(one.rounds)]
        yield f"| {' | '.join([*cells, *_mib(one.carried, one.direct, one.xla)])} |"


def main() -> None:
    reshards = {**corpus(), **random_reshards(RANDOM), **asked(RANDOM)}
    xla = compiled(reshards)
    found = {topology: list(loads(reshards, xla, topology)) for topology in TOPOLOGIES}
    lines = [
        "# The busiest link of TPU modules over that of a direct exchange, and of XLA's plan",
        "",
        "The load of the busiest link over all rounds: geometric mean and worst, for the corpus, "
        f"{RANDOM} random reshards, and {RANDOM} that JAX accepts. Before: modules of 2026-11-24.",
        "",
        "| topology | forward | over direct | before | send at once | over direct | beside XLA's "
        "| over XLA's | at most XLA's |",
        "| --- " * 9 + "|",
        *(summary(topology, each) for topology, each in found.items()),
        "",
        f"Of {SHAPE[0]} x {SHAPE[1]} bfloat16; MiB of the busiest links, predicted microseconds:",
        "",
        "| reshard | on | MiB | directly | XLA's | before | microseconds | before |",
        "| --- " * 8 + "|",
        *large(),
        "",
        "Cases in which tiles may change axes on the way, direct and turned; rounds overlap:",
        "",
        "| reshard | on | MiB | turned | before | microseconds | turned | before | taken |",
        "| --- " * 9 + "|",
        *turned(),
        "",
        "The MiB on the busiest link of each module:",
        "",
        "| reshard | on | rounds | MiB | directly | XLA's |",
        "| --- " * 6 + "|",
        *(line for each in found.values() for line in each_of(each)),
    ]
    RESULT.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
