"""The TPU kernel where devices send directly over a power of two of hops only: modules in the
interpreter, planted faults, devices in a wrong order, the TPU compiler."""

from __future__ import annotations

import dataclasses
import re
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from lone import alone, alone_in_form
from running import reports_of
from sessions import session

import shardwright as sw
from shardwright.codegen.backends.pallas_tpu import context as pallas_tpu
from shardwright.codegen.backends.pallas_tpu.phases import choice_of
from shardwright.codegen.backends.pallas_tpu.routed.schedule import Round, RoutedSchedule, routed
from shardwright.codegen.backends.pallas_tpu.routed.steps import steps_of
from shardwright.codegen.backends.pallas_tpu.routed.strategy import ForwardingForm
from shardwright.codegen.backends.pallas_tpu.routed.turns import Freight
from shardwright.codegen.backends.pallas_tpu.routed.ways import Hop, Ways
from shardwright.codegen.backends.pallas_tpu.strategy import (
    FormChoice,
    candidates,
    fastest,
    grid_of,
)
from shardwright.codegen.backends.pallas_tpu.verify.contract import programs_of
from shardwright.codegen.backends.pallas_tpu.verify.deliveries import check_deliveries
from shardwright.codegen.backends.pallas_tpu.verify.events import Copy, Wait
from shardwright.codegen.backends.pallas_tpu.verify.halves import check_halves
from shardwright.codegen.backends.pallas_tpu.verify.order import Traces
from shardwright.codegen.backends.pallas_tpu.verify.protocol import check_protocol
from shardwright.codegen.backends.pallas_tpu.verify.trace import trace
from shardwright.codegen.checks.compare import MismatchError
from shardwright.codegen.checks.load import load
from shardwright.codegen.moves import plan
from shardwright.codegen.operations.bundles.compile import compile_bundles
from shardwright.codegen.operations.compile import TpuCode, targets
from shardwright.codegen.operations.verify import Case
from shardwright.codegen.text.context import as_vectors
from shardwright.ir import InputError, Mesh, Reshard
from shardwright.ir.dtypes import DTYPES
from shardwright.ir.errors import InternalError
from shardwright.ir.plan import Plan


def broken(schedule: RoutedSchedule) -> Iterator[RoutedSchedule]:
    """A round too few, a round twice, a wrong move, a wrong place at the end, too few places."""
    first, *rest = schedule.rounds
    yield dataclasses.replace(schedule, rounds=tuple(rest))
    yield dataclasses.replace(schedule, rounds=(first, *schedule.rounds))
    (sent, *sends) = first.sends
    move, *moves = sent.moves
    wrong = Round((sent._replace(moves=(move._replace(there=move.here), *moves)), *sends))
    yield dataclasses.replace(schedule, rounds=(wrong, *rest))
    yield dataclasses.replace(schedule, arrives=schedule.arrives[1:] + schedule.arrives[:1])
    yield dataclasses.replace(schedule, places=schedule.places - 1)


@pytest.mark.parametrize("name", ["routed", "spread"])
def test_wrong_schedules_fail_emission(name: str) -> None:
    made = planned(MESH_4, (40, 48), "float32", '[{"x"}, {}]', '[{}, {"x"}]', "v5e:2x2")
    form = next(f for f in forms(made) if f.name == name)
    exchange = as_vectors(made.exchange)
    form.prove(exchange)
    for schedule in broken(form.schedule):
        with pytest.raises(InternalError, match=f"^{name} form: "):
            dataclasses.replace(form, schedule=schedule).prove(exchange)


def test_parts_too_small_and_offsets_left_out_fail_emission() -> None:
    made = planned(MESH_8, (259, 386), "float32", '[{"x"}, {"y"}]', '[{"y"}, {"x"}]')
    exchange = as_vectors(made.exchange)
    for form in (form for form in forms(made) if not form.spreads):
        first, *rest = form.slot.shape
        slot = dataclasses.replace(form.slot, shape=(first - form.slot.unit, *rest))
        with pytest.raises(
            InternalError, match="the part of a slot that is sent is smaller than a tile"
        ):
            dataclasses.replace(form, slot=slot).prove(exchange)
        pieces = [Freight(offset) for offset in form.schedule.offsets[1:]]
        fewer = routed(pieces, Ways.on_one_axis(form.digits))
        with pytest.raises(InternalError, match="goes over an offset that has no slot"):
            dataclasses.replace(form, schedule=fewer).prove(exchange)


MESH_4, MESH_6 = Mesh({"x": 4}), Mesh({"x": 2, "y": 3})
MESH_8, MESH_222 = Mesh({"x": 2, "y": 4}), Mesh({"x": 2, "y": 2, "z": 2})


def planned(
    mesh: Mesh,
    shape: tuple[int, ...],
    dtype: str,
    source: str,
    target: str,
    topology: str = "v5e:2x4",
    other: Mesh | None = None,
) -> Plan:
    sides = mesh.sharding(source), (other or mesh).sharding(target)
    return plan(Reshard(shape, dtype, *sides), "direct", topology=topology)


def choices(made: Plan) -> list[FormChoice]:
    exchange = as_vectors(made.exchange)
    return list(candidates(exchange, DTYPES[made.reshard.dtype], grid_of(made)))


def forms(made: Plan) -> list[ForwardingForm]:
    return [choice.form for choice in choices(made) if isinstance(choice.form, ForwardingForm)]


ROWS, COLUMNS = '[{"x", "y"}, {}]', '[{}, {"x", "y"}]'
ALL_TO_ALL = planned(MESH_4, (40, 48), "float32", '[{"x"}, {}]', '[{}, {"x"}]', "v5e:2x2")
TRANSPOSE = planned(MESH_8, (257, 386), "int8", '[{"x"}, {"y"}]', '[{"y"}, {"x"}]')
SIX = planned(MESH_6, (25, 31), "bfloat16", ROWS, '[{}, {"y", "x"}]')
# Over a digit of extent 2 and one of 3, where the sender of a round is not its receiver.
ASKEW = planned(
    Mesh({"x": 6}),
    (36, 8),
    "float32",
    '[{"x"}, {}]',
    '[{"x"}, {}]',
    other=Mesh({"x": 6}, [3, 2, 5, 4, 1, 0]),
)
# A ring, along which what goes half around goes both ways.
RING, RING_AND_LINE = (
    f"torus:{axes},bandwidth=5e10,latency=1e-6,powers_of_two=1"
    for axes in ("8,wrap=1", "4x2,wrap=1x0")
)
ON_A_RING = planned(MESH_8, (192, 1100), "float32", ROWS, COLUMNS, RING)
CASES = {
    "all to all": ALL_TO_ALL,
    "ring": ON_A_RING,
    "ring and line": planned(MESH_8, (256, 264), "bfloat16", ROWS, COLUMNS, RING_AND_LINE),
    "gather on a ring": planned(MESH_8, (64, 130), "int8", ROWS, "[{}, {}]", RING),
    "askew": ASKEW,
    "transpose": TRANSPOSE,
    "three axes": planned(
        MESH_222, (9, 11, 6), "bool", '[{"x", "y", "z"}, {}, {}]', '[{}, {"x"}, {"z", "y"}]'
    ),
    "64 bits": planned(MESH_8, (33, 18), "int64", ROWS, '[{}, {"y", "x"}]'),
    "gather": planned(MESH_8, (64, 130), "float32", ROWS, "[{}, {}]"),
    "gather in halves": planned(MESH_8, (512, 130), "int8", ROWS, "[{}, {}]", RING),
    "uneven gather": planned(MESH_8, (261, 130), "bfloat16", ROWS, "[{}, {}]"),
    "gather of some": planned(MESH_8, (250, 36), "int32", ROWS, '[{}, {"x"}]', RING_AND_LINE),
    "gather of a vector": planned(MESH_8, (8192,), "int8", '[{"y", "x"}]', "[{}]"),
    "six of eight": SIX,
    "vector": planned(MESH_8, (5001,), "float16", '[{"x", "y"}]', '[{"y", "x"}]'),
    "pieces": planned(MESH_8, (65, 40), "int8", '[{}, {"x"}]', '[{"y"}, {}]'),
    "other devices": planned(
        MESH_4,
        (40, 24),
        "float32",
        '[{"x"}, {}]',
        '[{}, {"y"}]',
        other=Mesh({"y": 4}, [4, 5, 6, 7]),
    ),
    "reversed": planned(
        MESH_8,
        (40, 24),
        "float32",
        '[{"x"}, {"y"}]',
        '[{"x"}, {"y"}]',
        other=Mesh({"x": 2, "y": 4}, [7, 6, 5, 4, 3, 2, 1, 0]),
    ),
}


def written(made: Plan, path: Path, *edits: tuple[str, str]) -> Path:
    """The module of a plan, after edits of its text, each of which must apply."""
    text = alone(made, "pallas_tpu")
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(["ring", "three axes", "pieces", "other devices"], marks=pytest.mark.slow),
        pytest.param([*CASES], marks=pytest.mark.exhaustive),
    ],
    ids=["some", "all"],
)
def test_modules_move_what_they_should(names: list[str], tmp_path: Path) -> None:
    """Against the oracle, in the interpreter, with races on; every schedule and kind of slot."""
    pytest.importorskip("jax")
    cases, kinds = [], set()
    for number, name in enumerate(names):
        made = CASES[name]
        path = written(made, tmp_path / f"case{number}.py")
        cases.append(Case.of(made.reshard, name, "pallas_tpu", path))
        form = choice_of(made).form
        assert isinstance(form, ForwardingForm), name
        kinds.add((form.name, form.schedule.halves))
    forms = "routed", "gathered", "spread"
    every = {(form, halves) for form in forms for halves in (False, True)}
    assert kinds == every or names != [*CASES]
    failed = [r for r in reports_of("pallas_tpu", cases) if r.verdict != "ok"]
    assert not failed, "\n".join(f"{r.name}\n    {r.detail}" for r in failed)


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        # Of the largest tile the rows are whole units of memory.
        pytest.param("int8", (253, 386), marks=pytest.mark.exhaustive),
        pytest.param("float32", (61, 253), marks=pytest.mark.exhaustive),
        # They are not.
        pytest.param("int8", (37, 158), marks=pytest.mark.slow),
        pytest.param("float32", (25, 175), marks=pytest.mark.exhaustive),
    ],
)
def test_every_form_of_thin_and_wide_tiles(
    dtype: str, shape: tuple[int, int], tmp_path: Path
) -> None:
    """Boxes and rows in slots, pieces and shards: the same tensor each time."""
    pytest.importorskip("jax")
    made = planned(MESH_8, shape, dtype, '[{"x"}, {"y"}]', '[{"y"}, {"x"}]')
    cases, parts = [], set()
    for number, choice in enumerate(choices(made)):
        assert isinstance(choice.form, ForwardingForm)
        choice.form.prove(as_vectors(made.exchange))
        parts.add((choice.form.name, choice.form.slot.dense))
        path = tmp_path / f"case{number}.py"
        path.write_text(alone_in_form(made, choice))
        cases.append(Case.of(made.reshard, str(choice.form.slot), "pallas_tpu", path))
    assert len(parts) == 4
    failed = [r for r in reports_of("pallas_tpu", cases) if r.verdict != "ok"]
    assert not failed, "\n".join(f"{r.name}\n    {r.detail}" for r in failed)


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_every_form_on_a_ring(dtype: str, tmp_path: Path) -> None:
    """Boxes of float32 and rows go in halves; boxes of int8 have too few rows."""
    pytest.importorskip("jax")
    made, cases = planned(MESH_8, (128, 1100), dtype, ROWS, COLUMNS, RING), []
    halves = set()
    for number, choice in enumerate(choices(made)):
        assert isinstance(choice.form, ForwardingForm)
        choice.form.prove(as_vectors(made.exchange))
        if choice.form.schedule.halves:
            halves.add(choice.form.slot.dense)
        path = tmp_path / f"case{number}.py"
        path.write_text(alone_in_form(made, choice))
        cases.append(Case.of(made.reshard, str(choice.form.slot), "pallas_tpu", path))
    assert halves == ({True, False} if dtype == "float32" else {True})
    failed = [r for r in reports_of("pallas_tpu", cases) if r.verdict != "ok"]
    assert not failed, "\n".join(f"{r.name}\n    {r.detail}" for r in failed)


LEFT = """\
        for other in step.left:
            leave(other)
"""
TELL = """\
        if step.told:
            tell(hop(me, *step.back), free.at[np.int32(number)])
"""
COME = """\
        for other in step.come:
            come(other)
"""
HEAR = """\
        if step.told:
            hear(number)
"""
SEND = "        send(number)\n"
EARLY = r"rank \d \w+ 'slots' of rank \d at .* while rank"
# All are found by the model of the protocol, on events.
FAULTS = {
    # By vector clocks: what left the place may still be read there.
    "a round started early": (TELL + COME + HEAR, COME, EARLY),
    "a piece sent before its slot is free": (HEAR + SEND, SEND + HEAR, EARLY),
    "a slot said to be free too early": (LEFT + TELL, TELL + LEFT, EARLY),
    # By vector clocks: what is sent on may still be written.
    "what has not come sent on": (COME + HEAR + SEND, HEAR + SEND + COME, EARLY),
    "a handshake the wrong way": (
        "tell(hop(me, *step.back), free",
        "tell(hop(me, *step.way), free",
        rf"{EARLY}|barrier: |semaphore 'free|deadlock: ",
    ),
    # By the sums of semaphores.
    "no barrier": (
        "    pl.semaphore_wait(barrier, count)  # 1 from each partner\n",
        "",
        r"barrier: rank 0 writes into rank 1 after 0 of \d signals",
    ),
    "a short barrier": (
        "pl.semaphore_wait(barrier, count)",
        "pl.semaphore_wait(barrier, count - 1)",
        r"barrier: rank 0 writes into rank 1 after \d of \d signals",
    ),
    "no wait for what is sent": (
        "for step in steps):\n            leave(number)\n",
        "for step in steps):\n            pass\n",
        r"semaphore 'sent\[\d\]' of rank 0",
    ),
    "no wait for what comes": (
        "for step in steps):\n            come(number)\n",
        "for step in steps):\n            pass\n",
        r"semaphore 'received\[\d\]' of rank 0",
    ),
    "a wait skipped on the way": (COME, "", r"semaphore 'received\[\d\]' of rank 0"),
    "a partner that was not met": (
        "device = SCHEDULE.device(hop(me, *step.way))",
        "device = SCHEDULE.device(hop(me, 1, *step.way[1:]))",
        rf"barrier: rank \d writes into rank \d without a signal|deadlock|{EARLY}",
    ),
}


@cache
def check_right() -> None:
    """Without a fault, once for all of them."""
    with tempfile.TemporaryDirectory() as folder:
        check_protocol(events_of(load(written(ASKEW, Path(folder) / "right.py")), 6))


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_found(name: str, tmp_path: Path) -> None:
    pytest.importorskip("jax")
    old, new, said = FAULTS[name]
    check_right()
    with pytest.raises(MismatchError, match=f"^({said})"):
        check_protocol(events_of(load(written(ASKEW, tmp_path / "wrong.py", (old, new))), 6))


def test_two_calls_one_after_another(tmp_path: Path) -> None:
    """A device that signals again before it was heard stands for one that has not come yet. Found
    by holding each device back before a call: the model of reshards in two halves. One device of
    16 sends all that there is to another, through places that nothing comes to again, so that it
    has nobody else to wait for."""
    pytest.importorskip("jax")
    mesh, ids = Mesh({"x": 16}), [5, 1, 2, 3, 4, 0, *range(6, 16)]
    sides = '[{"x"}, {}]', '[{"x"}, {}]'
    swap = planned(mesh, (1, 128), "float32", *sides, "v5e:4x4", Mesh({"x": 16}, ids))
    once = (
        ("moves=((0, 0, 0), (0, 0, 0))", "moves=((0, 1, 0), (1, 2, 0))"),
        ("arrives=(0,)", "arrives=(2,)"),
        ("slots=1,", "slots=3,"),
        ("(0,), (0,), True)", "(0,), (), False)"),
    )
    right = load(written(swap, tmp_path / "right.py", *once))
    calls = [(number, events_of(right, 16)) for number in range(2)]
    check_deliveries(*programs_of(right), calls[0][1])
    check_halves(calls)
    tells = "        tell(place, met)\n"
    waits = "    pl.semaphore_wait(met, count)  # 1 from each partner\n"
    wrong = load(
        written(swap, tmp_path / "wrong.py", *once, (tells, "        pass\n"), (waits, ""))
    )
    check_protocol(events_of(wrong, 16))
    with pytest.raises(MismatchError, match=r"^halves: rank \d writes into rank \d, which has not"):
        check_halves([(number, events_of(wrong, 16)) for number in range(2)])


def test_chunks_go_on_while_others_come(tmp_path: Path) -> None:
    """A step waits for the chunk that it sends on, and for none that comes after that; and of steps
    that it waits for each has to do with its slots."""
    pytest.importorskip("jax")
    made = planned(MESH_8, (4096, 4096), "float32", ROWS, COLUMNS, RING)
    program, form = load(written(made, tmp_path / "module.py"))._PROGRAM, choice_of(made).form
    assert isinstance(form, ForwardingForm)
    steps, moves = program.steps, program.schedule.moves
    assert form.chunks > 1
    assert sum(step.end - step.first for step in steps) == form.chunks * len(moves)
    for step in steps:
        for other in map(steps.__getitem__, step.come):
            assert other.chunk == step.chunk
            assert moves[other.first][1] == moves[step.first][0]
        for other in map(steps.__getitem__, step.left):
            assert moves[other.first][0] == moves[step.first][1]
    events = events_of(load(written(made, tmp_path / "module.py")), 8)[0]
    waits = [n for n, e in enumerate(events) if isinstance(e, Wait) and "received" in e.semaphore]
    copies = [n for n, e in enumerate(events) if isinstance(e, Copy) and e.to]
    assert copies[0] < waits[0] < copies[-1]


@pytest.mark.parametrize("name", ["ring", "gather"])
def test_the_model_takes_the_steps_that_modules_do(name: str, tmp_path: Path) -> None:
    """What is sent over which hop, and in its waits; where not all devices send, steps that use a
    place on other devices are not waited for."""
    pytest.importorskip("jax")
    made = CASES[name]
    form, program = choice_of(made).form, load(written(made, tmp_path / "module.py"))._PROGRAM
    assert isinstance(form, ForwardingForm)
    steps = [step for each in steps_of(form, np.arange(len(program.moves.ranks))) for step in each]
    assert len(steps) == len(program.steps)
    sizes = [sent.sum() for sent in (step.flows.weight for step in steps)]
    assert sum(sizes) == pytest.approx(form.itemsize * form.sent)
    waited: dict[str, set[int]] = {"come": set(), "left": set()}
    for step, emitted in zip(steps, program.steps, strict=True):
        assert (Hop(*emitted.way).to(step.flows.sender) == step.flows.receiver).all()
        for waits, known in waited.items():
            known |= {*getattr(emitted, waits)}
            assert {*getattr(step, waits)} <= known
    if not form.schedule.is_shared:
        waits = [(step.come, step.left) for step in steps]
        assert waits == [(step.come, step.left) for step in program.steps]


def test_a_half_that_goes_nowhere_is_found(tmp_path: Path) -> None:
    """A first half in place of the second."""
    pytest.importorskip("jax")
    right = load(written(ON_A_RING, tmp_path / "right.py"))
    events = events_of(right, 8)
    check_protocol(events)
    check_deliveries(*programs_of(right), events)
    assert right._PROGRAM.fault() == ""
    edit = "(9, 3, 13, 13)", "(9, 3, 0, 13)"
    wrong = load(written(ON_A_RING, tmp_path / "wrong.py", edit))
    assert right._PROGRAM.fault() != wrong._PROGRAM.fault()
    with pytest.raises(MismatchError, match=r"^slot \d+ of rank \d holds slot"):
        check_deliveries(*programs_of(wrong), events_of(wrong, 8))


MOVED = r"slot \d of rank \d holds slot \d of rank \d, expected: slot \d of rank \d"


@pytest.mark.parametrize(
    ("edits", "said"),
    [
        ([("(4, 2))", "(4, 1))"), ("arrives=(1, 3, 2)", "arrives=(1, 3, 1)")], MOVED),
        ([("Step(0, (2, 2, 1)", "Step(0, (1, 2, 1)")], MOVED),
        ([("(1, 3)", "(2, 3)")], MOVED),
        (
            [("offsets=(1, 2, 3)", "offsets=(1, 2)"), ("arrives=(1, 3, 2)", "arrives=(1, 3)")],
            "nothing is sent over offset 3, expected: a tile from rank 0 to rank 3",
        ),
    ],
    ids=["two tiles in one slot", "a wrong partner", "a wrong move", "a tile that has no way"],
)
def test_what_comes_to_a_wrong_place_is_found(
    edits: list[tuple[str, str]], said: str, tmp_path: Path
) -> None:
    """At full size, without moving anything."""
    pytest.importorskip("jax")
    right = load(written(ALL_TO_ALL, tmp_path / "right.py"))
    check_deliveries(*programs_of(right), events_of(right, 4))
    wrong = load(written(ALL_TO_ALL, tmp_path / "wrong.py", *edits))
    with pytest.raises(MismatchError, match=f"^{said}$"):
        check_deliveries(*programs_of(wrong), events_of(wrong, 4))


def events_of(module: ModuleType, devices: int) -> Traces:
    """What the one kernel of a module does."""
    return trace(module, *programs_of(module), devices)


def test_a_wrong_route_gives_wrong_values(tmp_path: Path) -> None:
    """Which the oracle sees: everything comes over the same hops, from somebody else."""
    pytest.importorskip("jax")
    wrong = (
        "self.schedule.farther(at, offsets[number])",
        "self.schedule.farther(at, offsets[number] ^ 1)",
    )
    path = written(ALL_TO_ALL, tmp_path / "wrong.py", wrong)
    (report,) = reports_of("pallas_tpu", [Case.of(ALL_TO_ALL.reshard, "a", "pallas_tpu", path)])
    assert (report.verdict, "element" in report.detail) == ("failed", True)


@pytest.mark.slow
def test_every_copy_is_one_hop_of_a_torus(tmp_path: Path) -> None:
    """At full size, with ids filling a 4x4 torus; nothing else is sent."""
    pytest.importorskip("jax")
    mesh = Mesh({"x": 16})
    made = planned(mesh, (512, 512), "float32", '[{"x"}, {}]', '[{}, {"x"}]', "v5e:4x4")
    events = events_of(load(written(made, tmp_path / "module.py")), 16)
    check_protocol(events)
    ends = [(rank, e.to) for rank, own in enumerate(events) for e in own if isinstance(e, Copy)]
    copies = [(sender, receiver) for sender, receiver in ends if sender != receiver]
    assert len(copies) == 16 * 32
    for s, r in copies:
        hops = [abs(a - b) for a, b in zip(divmod(s, 4), divmod(r, 4), strict=True)]
        assert sorted(hops) in ([0, 1], [0, 2])


@pytest.mark.slow
def test_the_fewest_bytes_are_chosen() -> None:
    """An all-to-all forwards its pieces; a gather sends shards, for half of the bytes, and without
    slots where they are aligned."""
    made = planned(MESH_8, (64, 128), "float32", ROWS, "[{}, {}]")
    exchange, itemsize = as_vectors(made.exchange), DTYPES[made.reshard.dtype]
    best = fastest(tuple(candidates(exchange, itemsize, grid_of(made))))
    assert best.form.name == "gathered"
    assert best.figures.wire_padding == 1
    uneven = choice_of(CASES["uneven gather"])
    assert uneven.form.name == "spread"
    assert uneven.figures.wire_padding < 1.2
    routed = [
        c for c in choices(made) if isinstance(c.form, ForwardingForm) and c.form.name == "routed"
    ]
    forwarded = [c.figures.wire_bytes for c in routed if not c.form.lines]
    assert min(forwarded) > 1.7 * best.figures.wire_bytes
    assert choice_of(ALL_TO_ALL).form.name == "routed"


def test_where_all_are_in_reach_tiles_go_straight(tmp_path: Path) -> None:
    """Along one axis of two devices: the forms of other chips, but the devices are looked up."""
    made = planned(MESH_8, (512, 256), "float32", '[{"x"}, {}]', '[{}, {"x"}]')
    assert choice_of(made).form.name == "direct"
    text = written(made, tmp_path / "module.py").read_text()
    assert "powers_of_two=True" in text


def test_devices_that_hops_do_not_lead_to() -> None:
    """Seven devices, and ids in an order of no axis."""
    seven = Mesh({"x": 7})
    mixed = Mesh({"x": 4}, [0, 3, 1, 2])
    for mesh in (seven, mixed):
        made = planned(mesh, (70, 70), "float32", '[{"x"}, {}]', '[{}, {"x"}]')
        with pytest.raises(InputError) as caught:
            pallas_tpu.refuse(made)
        assert str(caught.value) == (
            "topology: some tiles must travel farther than one send reaches (a power of two of "
            "links along one axis), and devices in this order cannot forward them\n"
            "got: torus:2x4,wrap=0x0,bandwidth=5e+10,latency=1e-06,powers_of_two=1,ragged=512,"
            "memory=8.19e+11, "
            f"device ids {', '.join(map(str, mesh.device_ids))}\n"
            "expected: a mesh over whole or half axes of the torus, with device ids in the order "
            "of these axes; or no topology, if the module is for other chips"
        )
        assert sw.emit(made.reshard, ("pallas_tpu",)).plan.prediction is None


def stood(coords: Sequence[tuple[int, ...]], kind: str = "TPU v5 lite") -> list[SimpleNamespace]:
    return [
        SimpleNamespace(id=number, platform="tpu", device_kind=kind, coords=at)
        for number, at in enumerate(coords)
    ]


@pytest.mark.parametrize("made", [ALL_TO_ALL, CASES["reversed"], TRANSPOSE])
def test_where_devices_are_is_looked_up(made: Plan, tmp_path: Path) -> None:
    pytest.importorskip("jax")
    program = load(written(made, tmp_path / "module.py"))._HOST.program
    count = made.devices
    check = partial(program.settings, interpret=False, collective_id=None)
    check(stood([(n % 2, n // 2, 0) for n in range(count)]))
    other = stood([(n // (count // 2), n % (count // 2), 0) for n in range(count)])
    if program.schedule.lines:
        with pytest.raises(ValueError, match=r"^mesh: device 2 at \(0, 2, 0\) must send to") as far:
            check(other)
        again = "; or a module emitted for this order, device_ids=[0, 1, 2, 3, 4, 5, 6, 7]"
        assert str(far.value).endswith(again) == program.peers.one_order
    else:
        check(other)
    # Around a ring of 2 x 4, as orders that are good for other collectives have it.
    ring = [(0, n, 0) for n in range(count // 2)] + [(1, n, 0) for n in reversed(range(count // 2))]
    check(stood(ring, "TPU v6 lite"))
    with pytest.raises(ValueError, match=r"^mesh: device \d at \(0, \d, 0\) must send to device"):
        check(stood(ring))


COMPOSED = """
from pathlib import Path
import jax, numpy as np
from jax.sharding import Mesh
from shardwright.codegen.checks.load import load
there, back = load(Path(first)), load(Path(second))
mesh = Mesh(np.array(jax.devices()[:4]), ("x",))
tensor = np.arange(np.prod(there.SHAPE), dtype=there.DTYPE).reshape(there.SHAPE)
def program(x):
    for _ in range(2):
        y = there.reshard(x, mesh, interpret=True)
        x = back.reshard(y, mesh, interpret=True)
    return there.reshard(x, mesh, interpret=True)
x = jax.device_put(there.pad(tensor), there.source_sharding(mesh))
y = jax.jit(program, out_shardings=there.target_sharding(mesh))(x)
np.testing.assert_array_equal(there.unpad(y), tensor)
print(there._PROGRAM.form, back._PROGRAM.form, there.COLLECTIVE_ID != back.COLLECTIVE_ID)
"""


@pytest.mark.slow
def test_two_modules_and_each_twice_in_one_program(tmp_path: Path) -> None:
    """All of the next call waits for all of this one, whatever device comes first."""
    pytest.importorskip("jax")
    rows, columns = '[{"x"}, {}]', '[{}, {"x"}]'
    there = planned(MESH_4, (8, 12), "int32", rows, columns, "v5e:2x2")
    back = planned(MESH_4, (8, 12), "int32", columns, rows, "v5e:2x2")
    other = "COLLECTIVE_ID = 0", "COLLECTIVE_ID = 2"
    first, second = written(there, tmp_path / "0.py"), written(back, tmp_path / "1.py", other)
    said = session().run(COMPOSED, first=str(first), second=str(second))
    assert re.fullmatch(r"(routed|spread) (routed|spread) True\n", said)


@pytest.mark.exhaustive
def test_v5e_compiles_what_is_forwarded(tmp_path: Path) -> None:
    try:
        targets.require(targets.parse_targets(["v5e:2x4"]), saving=False)
    except InputError as error:
        pytest.skip(" ".join(str(error).split()))
    mesh = CASES["transpose"].reshard.source.mesh
    wide = planned(mesh, (1031, 2050), "bfloat16", '[{"x"}, {"y"}]', '[{"y"}, {"x"}]')
    # In 64 bits Python's integers are 64 wide, which a kernel's must not be.
    for name, made in {**CASES, "wide": wide}.items():
        if name not in ("gather", "64 bits", "reversed", "vector", "wide"):
            continue
        sw.emit(made, ("pallas_tpu",)).write(tmp_path / f"a_{name.replace(' ', '_')}")
    for report in compile_bundles(tmp_path, ["v5e:2x4"], xla=False, time_limit=120):
        assert (report.verdict, report.detail) == ("ok", "")
        text = (tmp_path / report.name / "pallas_tpu.py").read_text()
        stated = re.search(r"^WIRE_BYTES = (\d+)  # ", text, re.M)
        assert stated is not None
        assert isinstance(report.code, TpuCode)
        assert report.code.wire_bytes == int(stated[1])
