"""Gathers whose source shards go from target shard to target shard: when they do, modules in the
interpreter, planted faults, what the model says, the TPU compiler."""

from __future__ import annotations

import dataclasses
import random
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from lone import alone_in_form
from running import reports_of
from sweeps import sampled

from shardwright.codegen.backends.pallas_tpu.kernel_forms.gathered import (
    misplaced,
    offsets_of_places,
)
from shardwright.codegen.backends.pallas_tpu.memory import FLAT_UNIT, tile_rows
from shardwright.codegen.backends.pallas_tpu.routed.steps import steps_of
from shardwright.codegen.backends.pallas_tpu.routed.strategy import ForwardingForm
from shardwright.codegen.backends.pallas_tpu.strategy import FormChoice, choices, preferred
from shardwright.codegen.backends.pallas_tpu.terms import moved
from shardwright.codegen.backends.pallas_tpu.timeline import timeline
from shardwright.codegen.backends.pallas_tpu.verify.aligned import check_aligned
from shardwright.codegen.backends.pallas_tpu.verify.contract import programs_of
from shardwright.codegen.backends.pallas_tpu.verify.halves import check_halves
from shardwright.codegen.backends.pallas_tpu.verify.order import Traces
from shardwright.codegen.backends.pallas_tpu.verify.protocol import check_protocol
from shardwright.codegen.backends.pallas_tpu.verify.trace import trace
from shardwright.codegen.checks.compare import MismatchError
from shardwright.codegen.checks.compiled.job import Job, What
from shardwright.codegen.checks.load import load
from shardwright.codegen.moves.direct import plan_direct
from shardwright.codegen.moves.network.timeline import Copies, cost_of
from shardwright.codegen.moves.plan import network_of
from shardwright.codegen.operations.compile import targets
from shardwright.codegen.operations.compile.pool import outcomes
from shardwright.codegen.operations.verify import Case
from shardwright.ir import InputError, Mesh, Reshard
from shardwright.ir.errors import InternalError
from shardwright.ir.plan import DirectPlan

MESH = Mesh({"x": 2, "y": 4})
TURNED = Mesh({"x": 2, "y": 4}, [7, 6, 5, 4, 3, 2, 1, 0])
RING = "torus:8,wrap=1,bandwidth=5e10,latency=1e-6,powers_of_two=1"
ROWS, COLUMNS, ALL = '[{"x", "y"}, {}]', '[{}, {"x", "y"}]', "[{}, {}]"


def planned(
    shape: tuple[int, ...],
    dtype: str,
    source: str,
    target: str,
    topology: str = "v5e:2x4",
    mesh: Mesh = MESH,
    other: Mesh | None = None,
) -> DirectPlan:
    sides = mesh.sharding(source), (other or mesh).sharding(target)
    reshard = Reshard(shape, dtype, *sides)
    return plan_direct(reshard, network=network_of(reshard, topology))


def gathers(made: DirectPlan) -> list[FormChoice]:
    return [choice for choice in made.once(choices) if choice.form.name == "gathered"]


def form_of(choice: FormChoice) -> ForwardingForm:
    assert isinstance(choice.form, ForwardingForm)
    return choice.form


def in_chunks(choice: FormChoice) -> FormChoice:
    """The same in chunks, however short."""
    return dataclasses.replace(choice, form=dataclasses.replace(form_of(choice), chunk_bytes=0))


CASES = {
    "rows": planned((64, 130), "float32", ROWS, ALL),
    "columns": planned((40, 2048), "float32", COLUMNS, ALL),
    "halves": planned((512, 130), "int8", ROWS, ALL, RING),
    "some": planned((128, 256), "float16", ROWS, '[{"x"}, {}]'),
    "three dimensions": planned((16, 24, 130), "bfloat16", '[{"x"}, {"y"}, {}]', "[{}, {}, {}]"),
    "64 bits": planned((128, 256), "int64", '[{"y", "x"}, {}]', ALL),
    "vector": planned((8192,), "float32", '[{"y", "x"}]', "[{}]"),
    "other order": planned((64, 256), "float32", ROWS, ALL, other=TURNED),
    "sums": planned((64, 256), "float32", '[{"y"}, {}], unreduced={"x"}', ALL),
}
# Why source shards do not go so: their ends, their places in memory, or what is wanted of them.
OTHERS = {
    "uneven": planned((66, 130), "float32", ROWS, ALL),
    "rows of bytes": planned((64, 130), "int8", ROWS, ALL),
    "lanes": planned((64, 136), "float32", COLUMNS, ALL),
    "vector": planned((4096,), "float32", '[{"x", "y"}]', "[{}]"),
    "parts": planned((64, 2048), "float32", ROWS, '[{}, {"y"}]'),
    "all to all": planned((64, 1024), "float32", ROWS, COLUMNS),
}


@pytest.mark.parametrize(
    "name", sampled(CASES, "halves", "three dimensions", "other order", "sums")
)
def test_aligned_gathers_have_no_slots(name: str) -> None:
    """Nothing is packed."""
    made = CASES[name]
    best = min(gathers(made), key=lambda choice: choice.cost)
    assert best.figures.staging_bytes == 0
    stages = best.form.stages(best.figures, moved(made), reduces=name == "sums")
    copies = {stage.what for stage in stages if isinstance(stage, Copies)}
    last = set() if name == "sums" else {"XLA copies a result that leaves the program"}
    assert last <= copies <= {*last, "XLA lays shards out"}
    for choice in gathers(made):
        choice.form.prove(moved(made))


@pytest.mark.parametrize("name", sampled(OTHERS, "rows of bytes", "lanes", "parts"))
def test_others_have(name: str) -> None:
    assert gathers(OTHERS[name]) == []


def sharding(dims: list[list[str]], some: list[str]) -> str:
    """The text of a sharding along those axes of dimensions that are some."""
    parts = (", ".join(f'"{name}"' for name in each if name in some) for each in dims)
    return f"[{', '.join(f'{{{part}}}' for part in parts)}]"


@pytest.mark.parametrize("seed", range(6))
def test_every_place_is_a_box_of_what_is_wanted(seed: int) -> None:
    """By brute force, of random gathers: on every device the source shards that come are all of
    the target shard, each aligned, and where the sender has it too."""
    rng = random.Random(seed)
    shape = tuple(rng.choice([8, 16, 20, 128, 256, 1024]) for _ in range(rng.choice([1, 2, 3])))
    names, dims = ["x", "y"], [list[str]() for _ in shape]
    for name in rng.sample(names, 2):
        dims[rng.randrange(len(shape))].append(name)
    kept = rng.choice([[], [], names[:1], names[1:]])
    source, target = (sharding(dims, some) for some in (names, kept))
    dtype, other = rng.choice(["float32", "int8", "bfloat16"]), rng.choice([None, TURNED])
    made = planned(shape, dtype, source, target, rng.choice(["v5e:2x4", RING]), other=other)
    exchange = moved(made)
    for choice in gathers(made):
        form, held = form_of(choice), dict[int, set[tuple[int, ...]]]()
        form.prove(exchange)
        meshes = exchange.source.mesh, exchange.target.mesh
        at, to = ({device: n for n, device in enumerate(mesh.device_ids)} for mesh in meshes)
        ids = exchange.ranks if other else np.array(meshes[0].device_ids)
        for offset in offsets_of_places(form.schedule):
            for rank, device in enumerate(ids.tolist()):
                back = [(rank // s - offset // s) % e * s for s, e in form.digits]
                low = [
                    dim.interval(int(dim.index(at[int(ids[sum(back)])])))[0]
                    - whole.interval(int(whole.index(to[device])))[0]
                    for dim, whole in zip(exchange.source.dims, exchange.target.dims, strict=True)
                ]
                held.setdefault(device, set()).add(tuple(map(int, low)))
        room, sizes = exchange.target.local_shape, exchange.source.local_shape
        steps = [range(0, whole, own) for whole, own in zip(room, sizes, strict=True)]
        every = set(map(tuple, np.array(np.meshgrid(*steps)).reshape(len(room), -1).T.tolist()))
        assert all(found == every for found in held.values())
        units = (
            (FLAT_UNIT,)
            if len(shape) == 1
            else (tile_rows(room[form.view[-2]], form.itemsize), 128)
        )
        for axis, unit in zip(form.view[-2:], units, strict=True):
            assert sizes[axis] == room[axis] or sizes[axis] % unit == 0


def test_wrong_places_fail_emission() -> None:
    made = CASES["columns"]
    exchange, form = moved(made), form_of(gathers(made)[0])
    with pytest.raises(InternalError, match="gathered form: a source shard is not aligned"):
        dataclasses.replace(form, view=(1, 0), itemsize=1).prove(moved(CASES["rows"]))
    less = dataclasses.replace(form.slot, shape=(8, 256))
    with pytest.raises(InternalError, match="gathered form: a source shard is not sent whole"):
        dataclasses.replace(form, slot=less).prove(exchange)
    rows = '[{"x"}, {"y"}]'
    given = form.schedule, form.digits, moved(planned((64, 256), "int8", rows, rows)), form.view, 4
    assert misplaced(*given) == "devices that send to each other have two target shards"
    given = form.schedule, form.digits, moved(OTHERS["all to all"]), form.view, 4
    assert misplaced(*given) == "a source shard is not in the target shard"
    given = form.schedule, form.digits, moved(OTHERS["uneven"]), form.view, 4
    assert misplaced(*given) == "some shards are short"
    once = dataclasses.replace(form.schedule, rounds=form.schedule.rounds[:1])
    wanted = "source shards do not fill the target shard"
    assert misplaced(once, form.digits, exchange, form.view, 4) == wanted
    other = planned((64, 256), "float32", '[{"x"}, {}]', ALL)
    assert misplaced(form.schedule, form.digits, moved(other), form.view, 4) == (
        "two source shards are in one place"
    )


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(["halves", "other order"], marks=pytest.mark.slow),
        pytest.param([*CASES], marks=pytest.mark.exhaustive),
    ],
    ids=["some", "all"],
)
def test_modules_move_what_they_should(names: list[str], tmp_path: Path) -> None:
    """Against the oracle, in the interpreter, with races on; as a whole, in halves and chunks."""
    pytest.importorskip("jax")
    chosen = [(name, choice) for name in names for choice in gathers(CASES[name])]
    kinds = run_each([(name, CASES[name], choice) for name, choice in chosen], tmp_path)
    assert names != [*CASES] or kinds == {(a, b) for a in (False, True) for b in (False, True)}


def run_each(
    chosen: list[tuple[str, DirectPlan, FormChoice]], tmp_path: Path
) -> set[tuple[bool, bool]]:
    """Run modules of plans in forms, as they are and in chunks, against the oracle; whether any
    were in chunks, and in halves."""
    cases, kinds = [], set()
    for name, made, choice in chosen:
        for each in {choice.form: choice, in_chunks(choice).form: in_chunks(choice)}.values():
            form = form_of(each)
            kinds.add((form.chunks > 1, form.schedule.halves))
            path = tmp_path / f"case{len(cases)}.py"
            path.write_text(alone_in_form(made, each))
            cases.append(Case.of(made.reshard, name, "pallas_tpu", path))
    failed = [r for r in reports_of("pallas_tpu", cases) if r.verdict != "ok"]
    assert not failed, "\n".join(f"{r.name}\n    {r.detail}" for r in failed)
    return kinds


def checked(made: DirectPlan, path: Path, *edits: tuple[str, str]) -> Traces:
    """What the module of a gather does, checked as `verify` does, after edits of its text."""
    return checked_in_form(made, gathers(made)[0], path, *edits)


def checked_in_form(
    made: DirectPlan, choice: FormChoice, path: Path, *edits: tuple[str, str]
) -> Traces:
    """What the module of a plan in a form does, from shard to shard, likewise."""
    text = alone_in_form(made, choice)
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    module = load(path)
    (program,) = programs_of(module)
    events = trace(module, program, made.exchange.ranks.size)
    check_protocol(events)
    check_aligned(program, events)
    return events


COME = """\
        for other in step.come:
            come(other)
"""
SEND = "        send(number)\n"
EARLY = r"rank \d reads 'y' of rank \d at .* while rank \d writes there"
FAULTS = {
    # By vector clocks: what is sent on may still be written.
    "sent on before it has come": (COME, "", SEND, SEND + COME, EARLY),
    # By the boxes of the tensor.
    "out of the target shard at first": (
        "copy(own)",
        "copy(there)",
        "",
        "",
        rf"{EARLY}|rank \d sends \[\d+, \d+\) x \[\d+, \d+\), which it has not received",
    ),
    "the own shard in place of what came": (
        "copy(there)",
        "copy(own)",
        "",
        "",
        r"rank \d sends \[\d+, \d+\) x .* of the tensor to the place of .* of rank \d",
    ),
    "another device's place": (
        "origin, _ = self.peers.here(order, self.schedule.farther(device, offset, -1))",
        "origin, _ = self.peers.here(order, self.schedule.farther(device, offset))",
        "",
        "",
        r"rank \d sends .* of the tensor to the place of|two copies write the same place of 'y'",
    ),
    "an own shard that is not copied": (
        "    keep.start()\n",
        "",
        "    keep.wait()",
        "    pass",
        r"rank 0 receives \d+ elements of its result, expected: \d+",
    ),
    # By the sums of semaphores.
    "no wait for the own shard": (
        "    keep.wait()",
        "    pass",
        "",
        "",
        r"semaphore 'received\[\d+\]' of rank 0: gets \d+ more than it waits for",
    ),
    "no wait for what is sent": (
        "for step in steps):\n            leave(number)\n",
        "for step in steps):\n            pass\n",
        "",
        "",
        r"semaphore 'sent\[\d+\]' of rank 0",
    ),
}


@cache
def check_right() -> None:
    """Without a fault, once for all of them."""
    with tempfile.TemporaryDirectory() as folder:
        right = checked(CASES["halves"], Path(folder) / "right.py")
    check_halves([(number, right) for number in range(2)])


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_found(name: str, tmp_path: Path) -> None:
    pytest.importorskip("jax")
    old, new, more, then, said = FAULTS[name]
    made = CASES["halves"]
    check_right()
    edits = [(old, new), *([(more, then)] if more else [])]
    with pytest.raises(MismatchError, match=f"^({said})"):
        checked(made, tmp_path / "wrong.py", *edits)


@pytest.mark.slow
def test_the_interpreter_finds_what_is_sent_too_early(tmp_path: Path) -> None:
    """Out of the target shard, before it has come there: a race, or poison."""
    pytest.importorskip("jax")
    path, text = tmp_path / "wrong.py", alone_in_form(CASES["rows"], gathers(CASES["rows"])[0])
    assert COME in text
    path.write_text(text.replace(COME, "").replace(SEND, SEND + COME))
    (report,) = reports_of(
        "pallas_tpu", [Case.of(CASES["rows"].reshard, "rows", "pallas_tpu", path)]
    )
    assert report.verdict == "failed"
    assert "race" in report.detail or "element" in report.detail


@pytest.mark.slow
def test_a_large_gather_takes_as_long_as_its_links() -> None:
    """Over 256 devices of a v5e, where packing took more than half of the time."""
    mesh = Mesh({"x": 256})
    made = planned((8192, 8192), "bfloat16", '[{"x"}, {}]', ALL, "v5e:16x16", mesh)
    assert made.prediction is not None
    cost = cost_of(timeline(made), network_of(made.reshard, made.prediction.topology))
    *rounds, copy = cost.stages
    assert copy.what == "XLA copies a result that leaves the program"
    assert 1e6 * sum(each.seconds for each in rounds) == pytest.approx(804, abs=1)
    assert 1e6 * cost.seconds == pytest.approx(1132, abs=1)
    form = form_of(preferred(made.once(choices)))
    form.prove(moved(made))
    steps = [step for each in steps_of(form, made.exchange.ranks) for step in each]
    assert not any(step.left for step in steps)  # no place is used again


@pytest.mark.exhaustive
def test_they_compile_in_both_widths(tmp_path: Path) -> None:
    """In every order of dimensions, as a whole and in halves, in chunks."""
    topology = "v5e:4x4"
    try:
        targets.require(targets.parse_targets([topology]), saving=False)
    except InputError as error:
        pytest.skip(" ".join(str(error).split()))
    mesh = Mesh({"x": 4, "y": 4})
    plans = [
        planned((4096, 4096), "bfloat16", ROWS, ALL, topology, mesh),
        planned((2048, 130), "int8", ROWS, '[{"x"}, {}]', topology, mesh),
        planned((16, 64, 130), "float32", '[{"x"}, {"y"}, {}]', "[{}, {}, {}]", topology, mesh),
        planned((1 << 14,), "float32", '[{"y", "x"}]', "[{}]", topology, mesh),
    ]
    jobs, widths = [], list[What](["module", "x64"])
    for made in plans:
        assert gathers(made)
        for choice in gathers(made):
            path = tmp_path / f"case{len(jobs)}.py"
            path.write_text(alone_in_form(made, choice))
            jobs += [Job(what, "pallas_tpu", "pallas_tpu", str(path), topology) for what in widths]
    assert {outcome.error for outcome in outcomes(jobs, 120)} == {""}
