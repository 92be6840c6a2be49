"""What each form and option of the TPU kernel gains: how much longer the best alternative takes,
according to the model, for random and for aligned reshards.

A form stays if, on some topology, the best alternative takes at least 5 % longer in at least 5 % of
the cases, or if no other form can run some case. The random reshards come from `bench/reshards.py`,
on as many devices as the topology has, or on 8 without a topology. Aligned reshards have extents
that are powers of two, so that tiles start at multiples of the tiling. The table is written to
`forms.md`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import shardwright as sw
from bench.reshards import in_two, random_reshard, random_sharding
from shardwright.codegen.backends.pallas_tpu.routed.strategy import ForwardingForm
from shardwright.codegen.backends.pallas_tpu.strategy import FormChoice, choices
from shardwright.codegen.hardware.presets import topology_of
from shardwright.ir.errors import InputError
from shardwright.ir.plan import direct_of

RESULT = Path(__file__).parent / "forms.md"
UNKNOWN = "none given"
TOPOLOGIES = (UNKNOWN, "v5e:2x4", "v5e:4x4", "v5p:2x2x2", "v6e:2x4", "v6e:4x4")
RANDOM, ALIGNED = 300, 60
WINS = 0.05
"""A form wins a case if the best alternative takes at least this fraction longer."""
MESHES = {8: ({"x": 8}, {"x": 2, "y": 4}), 16: ({"x": 16}, {"x": 4, "y": 4}, {"x": 2, "y": 8})}


def aligned(seed: int, devices: int) -> sw.Reshard:
    """Return a random reshard of rank 2 or 3 in bfloat16 or float32, with the last two extents from
    1,024 to 8,192."""
    rng = random.Random(seed)
    mesh = sw.Mesh(rng.choice(MESHES[devices]))
    rank = rng.choice((2, 3))
    shape = (*(64 for _ in range(rank - 2)), *(2 ** rng.randint(10, 13) for _ in range(2)))
    sides = (random_sharding(rng, mesh, rank, in_two) for _ in range(2))
    return sw.Reshard(shape, rng.choice(("bfloat16", "float32")), *sides)


def traits(choice: FormChoice) -> frozenset[str]:
    """Return the names of a form and its options."""
    form = choice.form
    found = {form.name}
    if form.view != tuple(range(len(form.view))):
        found.add("another order of dimensions")
    if choice.straight is not None:
        found.add("detour: forwarded though all are in reach")
    if isinstance(form, ForwardingForm):
        if form.lines:
            found.add("along lines")
        if form.spreads and form.schedule.halves:
            found.add("halves of shards apart")
        if form.slot.dense:
            found.add("dense slots")
    return frozenset(found)


def losses(every: Sequence[FormChoice]) -> dict[str, float]:
    """Return, for each form and option, how much longer the best choice without it takes, as a
    fraction of the best choice's seconds, or infinity if there is no choice without it."""
    best = min(choice.seconds for choice in every)
    found = {}
    for trait in frozenset[str]().union(*map(traits, every)):
        others = [choice.seconds for choice in every if trait not in traits(choice)]
        found[trait] = min(others) / best - 1 if others and best else float("inf")
    return found


def measured(
    topology: str, random_count: int, aligned_count: int
) -> dict[str, list[dict[str, float]]]:
    """Return the losses of every case that moves data, by kind: "random" or "aligned"."""
    given = None if topology == UNKNOWN else topology
    devices = (given and topology_of(given).size) or 8
    cases = {
        "random": [random_reshard(seed, (devices,)) for seed in range(random_count)],
        "aligned": [aligned(seed, devices) for seed in range(aligned_count)],
    }
    return {kind: list(_of(each, given)) for kind, each in cases.items()}


def _of(reshards: Sequence[sw.Reshard], topology: str | None) -> Iterator[dict[str, float]]:
    for reshard in reshards:
        try:
            made = direct_of(sw.plan(reshard, "direct", topology=topology))
        except InputError:  # the mesh's device order follows no axis
            continue
        every = made.once(choices)
        if every and min(choice.seconds for choice in every) > 0:
            yield losses(every)


def rows(topology: str, found: Mapping[str, Sequence[Mapping[str, float]]]) -> Iterator[str]:
    """Yield a line for each form and option of a topology."""
    every = sorted({name for cases in found.values() for case in cases for name in case})
    for name in every:
        cells = [topology, name]
        for cases in found.values():
            lost = [case[name] for case in cases if name in case]
            alone = sum(each == float("inf") for each in lost)
            wins = sum(each >= WINS for each in lost)
            most = max((each for each in lost if each < float("inf")), default=0.0)
            cells += [f"{wins} of {len(cases)}", f"{alone}", f"{most:.1%}"]
        yield f"| {' | '.join(cells)} |"


def main(count: int = RANDOM) -> None:
    """Print and write the table. `count`: the number of random cases for each topology."""
    lines = [
        "# What forms and options of the TPU kernel are worth",
        "",
        f"Among {count} random reshards and {ALIGNED} aligned ones that move anything: in how many "
        f"the best other form takes at least {WINS:.0%} longer, in how many there is no other "
        "form, and how much longer the best other one takes at most. Times are predicted by the "
        "model of `codegen/hardware`.",
        "",
        "Without a topology no module forwards tiles. Only then does the form `slots` win often "
        "enough to stay: windows send thin tiles with the padding of memory tiles, slots send them "
        "densely.",
        "",
        "Removed by this rule: sends as long as each device's own tile (205 lines of `codegen` and "
        "`templates`, of which 45 were replaced, and 106 of tests, of which 29 were replaced); "
        "padded slots on a v5e (20 lines, 6 replaced); and slots whose sends are as long as the "
        "largest tile over an offset (140 lines, 87 replaced). Without these, 7 of 300 random "
        "reshards took 5 % longer on v5e:2x4, 11 on v5e:4x4, 1 on each other torus, and no aligned "
        "one.",
        "",
        "| topology | without | random: wins | alone | most | aligned: wins | alone | most |",
        "| --- " * 8 + "|",
    ]
    for topology in TOPOLOGIES:
        lines += rows(topology, measured(topology, count, ALIGNED))
        print("\n".join(lines[10:]), flush=True)
    RESULT.write_text("\n".join(lines) + "\n")
