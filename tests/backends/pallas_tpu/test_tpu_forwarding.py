"""Random reshards in every form that forwards, each as a whole and in chunks: on lines, rings and
both, of tiles of one size and of several, aligned or not, in pieces, to other devices."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lone import alone, alone_in_form
from running import reports_of

from shardwright.codegen.backends.pallas_tpu.phases import choice_of
from shardwright.codegen.backends.pallas_tpu.routed.schedule import Push
from shardwright.codegen.backends.pallas_tpu.routed.strategy import ForwardingForm
from shardwright.codegen.backends.pallas_tpu.routed.ways import Hop
from shardwright.codegen.backends.pallas_tpu.strategy import FormChoice, choices
from shardwright.codegen.backends.pallas_tpu.terms import moved
from shardwright.codegen.backends.pallas_tpu.verify.aligned import check_aligned
from shardwright.codegen.backends.pallas_tpu.verify.contract import programs_of
from shardwright.codegen.backends.pallas_tpu.verify.deliveries import check_deliveries
from shardwright.codegen.backends.pallas_tpu.verify.halves import check_halves
from shardwright.codegen.backends.pallas_tpu.verify.protocol import check_protocol
from shardwright.codegen.backends.pallas_tpu.verify.trace import trace
from shardwright.codegen.checks.compiled.job import Job, What
from shardwright.codegen.checks.load import load
from shardwright.codegen.moves import plan
from shardwright.codegen.operations.compile import targets
from shardwright.codegen.operations.compile.pool import outcomes
from shardwright.codegen.operations.verify import Case
from shardwright.ir import InputError, Mesh, Reshard
from shardwright.ir.plan import DirectPlan, direct_of

MADE = "torus:{},bandwidth=5e10,latency=1e-6,powers_of_two=1"
TOPOLOGIES = {
    "v5e:2x4": range(8),
    "v5e:4x4": (0, 1, 2, 3, 4, 5, 6, 7),
    MADE.format("8,wrap=0"): range(8),
    MADE.format("8,wrap=1"): range(8),
    MADE.format("4x2,wrap=1x0"): range(8),
    MADE.format("16,wrap=1"): range(0, 16, 2),
    MADE.format("16,wrap=0"): range(15, -1, -2),
}


def random_plan(seed: int) -> DirectPlan:
    """A reshard of a tensor of some kilobytes over eight devices, or from four to others."""
    rng = random.Random(f"forwarding {seed}")
    topology = rng.choice([*TOPOLOGIES])
    ids = [*TOPOLOGIES[topology]]
    source, target = (Mesh({"x": 2, "y": 4}, ids) for _ in range(2))
    few = rng.random() < 0.2 and topology != "v5e:4x4"
    if few:  # some devices have only one of both
        source, target = Mesh({"x": 2, "y": 2}, ids[:4]), Mesh({"x": 4}, ids[2:6])
    elif rng.random() < 0.2:
        target = Mesh({"x": 2, "y": 4}, ids[::-1])
    rank = rng.choice([1, 2, 2, 2, 3])
    aligned = rng.random() < 0.4
    extents = (256, 512, 1024) if aligned else (5, 24, 37, 130, 259)
    shape = tuple(rng.choice(extents) for _ in range(rank)) if rank < 3 else (8, 37, 260)
    dtype = rng.choice(["float32", "bfloat16", "int8", "int64"])
    sides = []
    for mesh in (source, target):
        dims = [list[str]() for _ in shape]
        axes = [name for name, _ in mesh.axes]
        for axis in rng.sample(axes, rng.randint(1, len(axes))):
            dims[rng.randrange(rank)].append(axis)
        parts = (", ".join(f'"{axis}"' for axis in each) for each in dims)
        sides.append(mesh.sharding(f"[{', '.join(f'{{{part}}}' for part in parts)}]"))
    return direct_of(plan(Reshard(shape, dtype, *sides), "direct", topology=topology))


def forms(made: DirectPlan) -> Iterator[FormChoice]:
    """The forms that forward, as a whole and, if that differs, in chunks."""
    for choice in made.once(choices):
        if isinstance(choice.form, ForwardingForm):
            small = dataclasses.replace(choice.form, chunk_bytes=0)
            yield choice
            if small.chunks != choice.form.chunks:
                yield dataclasses.replace(choice, form=small)


def kind(form: ForwardingForm) -> tuple[object, ...]:
    """What distinguishes the texts of forms."""
    return form.name, bool(form.lines), form.chunks > 1


@pytest.mark.parametrize(
    "seed",
    [
        *(3, 7),
        *(pytest.param(seed, marks=pytest.mark.slow) for seed in (0, 4, 10, 17, 23)),
        *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(24, 48)),
    ],
)
def test_random_forms_keep_the_protocol(seed: int, tmp_path: Path) -> None:
    pytest.importorskip("jax")
    check_forms(random_plan(seed), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape",
    [(394, 2048), pytest.param((1000, 17, 512), marks=pytest.mark.exhaustive)],
    ids=str,
)
def test_halves_that_meet_on_their_way_keep_it(shape: tuple[int, ...], tmp_path: Path) -> None:
    """Over a v5e:4x4, from one axis to the other: tiles of one offset differ by some rows."""
    pytest.importorskip("jax")
    sides = []
    for axis in ("y", "x"):
        dims = [*["{}"] * (len(shape) - 2), f'{{"{axis}"}}', "{}"]
        sides.append(Mesh({"x": 4, "y": 4}).sharding(f"[{', '.join(dims)}]"))
    made = direct_of(plan(Reshard(shape, "float32", *sides), "direct", topology="v5e:4x4"))
    check_forms(made, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("dims", "target"), [("16x16", "[{}, {}]"), ("8x16", '[{}, {"x", "y"}]')])
def test_modules_of_large_slices_can_be_reviewed(dims: str, target: str, tmp_path: Path) -> None:
    """A way a tile, and none of source shards. What is said is what is meant."""
    pytest.importorskip("jax")
    x, y = map(int, dims.split("x"))
    mesh = Mesh({"x": x, "y": y})
    sides = mesh.sharding('[{"x", "y"}, {}]'), mesh.sharding(target)
    reshard = Reshard((8192, 8192), "bfloat16", *sides)
    made = direct_of(plan(reshard, "direct", topology=f"v5e:{dims}"))
    (tmp_path / "module.py").write_text(alone(made, "pallas_tpu"))
    (program,) = programs_of(load(tmp_path / "module.py"))
    form = choice_of(made).form
    assert isinstance(form, ForwardingForm)
    assert said(program.schedule) == planned(form)


def said(schedule: Any) -> tuple[object, ...]:
    """What a module says of its schedule: of every move the round and the hop, the moves, whom
    devices have to do with, and which slot is whose."""
    places = schedule.offsets, schedule.starts, schedule.arrives, schedule.slots, schedule.lines
    return schedule.ways, schedule.moves, schedule.partners, *places


def planned(form: ForwardingForm) -> tuple[object, ...]:
    """The same of the schedule that was planned."""
    schedule, slot = form.schedule, form.slot

    def row(move: Push) -> tuple[int, ...]:
        begin, extent = slot.part(move.halves)
        first = [begin] if schedule.halves else []
        cut = [extent] if form.is_cut else []
        last = [move.number] if schedule.is_shared else []
        return move.here, move.there, *first, *cut, *last

    sends = [
        (turn, numbers(sent.hop))
        for turn, each in enumerate(schedule.rounds)
        for sent in each.sends
        for _ in sent.moves
    ]
    starts = schedule.starts if schedule.is_shared else None
    places = schedule.offsets, starts, schedule.arrives, schedule.places, form.lines
    return sends, tuple(map(row, schedule.moves)), [*map(numbers, schedule.partners)], *places


def numbers(hop: Hop) -> tuple[int, int, int]:
    return hop.stride, hop.extent, hop.by


def check_forms(made: DirectPlan, tmp_path: Path) -> None:
    """At full size, on events: what is sent comes, in time, to where it is looked for."""
    for number, choice in enumerate(forms(made)):
        form = choice.form
        assert isinstance(form, ForwardingForm)
        form.prove(moved(made))
        path = tmp_path / f"case{number}.py"
        path.write_text(alone_in_form(made, choice))
        module = load(path)
        (program,) = programs_of(module)
        assert said(program.schedule) == planned(form)
        events = trace(module, program, made.exchange.ranks.size)
        check_protocol(events)
        check_deliveries(program, events)
        if form.in_place:
            check_aligned(program, events)
        check_halves([(each, events) for each in range(2)])


@pytest.mark.exhaustive
def test_all_kinds_are_among_them() -> None:
    made = (random_plan(seed) for seed in range(48))
    found = {kind(choice.form) for each in made for choice in forms(each)}  # type: ignore[arg-type]
    either = (False, True)
    assert {(n, a, b) for n in ("routed", "relayed") for a in either for b in either} <= found


@pytest.mark.parametrize(
    ("first", "count"),
    [
        pytest.param(0, 3, marks=pytest.mark.slow),
        *(pytest.param(6 * n, 6, marks=pytest.mark.exhaustive) for n in range(8)),
    ],
)
def test_random_forms_in_the_interpreter(first: int, count: int, tmp_path: Path) -> None:
    """Against the oracle, bit by bit, with races on."""
    pytest.importorskip("jax")
    rng, cases = random.Random(first), []
    for seed in range(first, first + count):
        made = random_plan(seed)
        every = [*forms(made)]
        for choice in rng.sample(every, min(2, len(every))):
            path = tmp_path / f"case{len(cases)}.py"
            path.write_text(alone_in_form(made, choice))
            name = f"{seed}: {kind(choice.form)}"  # type: ignore[arg-type]
            cases.append(Case.of(made.reshard, name, "pallas_tpu", path))
    failed = [r for r in reports_of("pallas_tpu", cases) if r.verdict != "ok"]
    assert not failed, "\n".join(f"{r.name}\n    {r.detail}" for r in failed)


@pytest.mark.exhaustive
def test_each_kind_compiles_in_both_widths(tmp_path: Path) -> None:
    """On a v5e, of tiles of several sizes and of one."""
    topology = "v5e:2x4"
    try:
        targets.require(targets.parse_targets([topology]), saving=False)
    except InputError as error:
        pytest.skip(" ".join(str(error).split()))
    mesh, jobs, seen = Mesh({"x": 2, "y": 4}), [], set()
    widths = list[What](["module", "x64"])
    turned, swapped = ('[{"x"}, {"y"}]', '[{"y"}, {"x"}]'), ('[{"x", "y"}]', '[{"y", "x"}]')
    for shape, dtype in (
        *(((1030, 1544), "float32"), ((257, 386), "int8"), ((2048, 4096), "bfloat16")),
        *(((65536,), "float32"), ((65600,), "int8")),
    ):
        sides = tuple(map(mesh.sharding, turned if len(shape) > 1 else swapped))
        made = direct_of(plan(Reshard(shape, dtype, *sides), "direct", topology=topology))
        for choice in forms(made):
            form = choice.form
            assert isinstance(form, ForwardingForm)
            own = (*kind(form), form.slot.dense, len(shape), form.schedule.halves)
            if own in seen or form.name not in ("routed", "relayed"):
                continue
            seen.add(own)
            path = tmp_path / f"case{len(jobs)}.py"
            path.write_text(alone_in_form(made, choice))
            jobs += [Job(what, "pallas_tpu", "pallas_tpu", str(path), topology) for what in widths]
    assert {dense for _, _, _, dense, *_ in seen} == {False, True}
    assert {rank for name, *_, rank, _ in seen if name == "relayed"} == {1, 2}
    assert {outcome.error for outcome in outcomes(jobs, 300)} == {""}
