"""The TPU kernel where all receivers are in reach and yet tiles turn off on their way: where that
is chosen, modules in the interpreter, planted faults, the TPU compiler."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise, permutations
from pathlib import Path

import numpy as np
import pytest
from lone import alone_in_form
from running import reports_of

import shardwright as sw
from shardwright.codegen import registry
from shardwright.codegen.backends.pallas_tpu.phases import choice_of
from shardwright.codegen.backends.pallas_tpu.routed.detours import at_least
from shardwright.codegen.backends.pallas_tpu.routed.schedule import Round
from shardwright.codegen.backends.pallas_tpu.routed.strategy import ForwardingForm
from shardwright.codegen.backends.pallas_tpu.routed.ways import Hop, digits_of
from shardwright.codegen.backends.pallas_tpu.strategy import FormChoice, choices
from shardwright.codegen.backends.pallas_tpu.terms import moved
from shardwright.codegen.backends.pallas_tpu.verify.aligned import check_aligned
from shardwright.codegen.backends.pallas_tpu.verify.contract import programs_of
from shardwright.codegen.backends.pallas_tpu.verify.deliveries import check_deliveries
from shardwright.codegen.backends.pallas_tpu.verify.protocol import check_protocol
from shardwright.codegen.backends.pallas_tpu.verify.trace import trace
from shardwright.codegen.checks.compare import MismatchError
from shardwright.codegen.checks.load import load
from shardwright.codegen.hardware.presets import topology_of
from shardwright.codegen.hardware.torus import Torus
from shardwright.codegen.moves.network.timeline import cost_of
from shardwright.codegen.moves.plan import network_of
from shardwright.codegen.operations.bundles.compile import compile_bundles
from shardwright.codegen.operations.compile import TpuCode, targets
from shardwright.codegen.operations.verify import Case
from shardwright.ir import InputError, Mesh
from shardwright.ir.errors import InternalError
from shardwright.ir.plan import DirectPlan, direct_of

FLAT, CUBE = Mesh({"x": 2, "y": 4}), Mesh({"x": 2, "y": 2, "z": 2})
ROWS, TURNED = '[{"x", "y"}, {}]', '[{"y", "x"}, {}]'


def planned(
    shape: tuple[int, ...],
    dtype: str,
    source: str,
    target: str,
    topology: str = "v5p:2x2x2",
    mesh: Mesh = FLAT,
) -> DirectPlan:
    sides = mesh.sharding(source), mesh.sharding(target)
    return direct_of(sw.plan(sw.Reshard(shape, dtype, *sides), "direct", topology=topology))


SWAP = planned((1024, 512), "float32", ROWS, TURNED)
CASES = {
    "swap": SWAP,
    "of two cores": planned((1024, 512), "bfloat16", ROWS, TURNED, "v4:2x2x1"),
    "uneven": planned((1037, 300), "int8", ROWS, TURNED),
    "both sides": planned((515, 260), "float32", '[{"x"}, {"y"}]', '[{"y"}, {"x"}]'),
    "reversed": planned(
        (250, 24), "int64", '[{"x", "y", "z"}, {}]', '[{"z", "y", "x"}, {}]', mesh=CUBE
    ),
}


TALL = Mesh({"x": 4, "y": 2})
LINE = planned((1024, 512), "float32", ROWS, TURNED, "v6e:2x4", TALL)
RING = "torus:2x4,wrap=0x1,bandwidth=5e10,latency=1e-6,memory=8e11"
BOTH = '[{"x"}, {"y"}]', '[{"y"}, {"x"}]'
STRAIGHT = {
    "line": LINE,
    "ring": planned((515, 260), "int8", *BOTH, RING, TALL),
    "uneven": planned((1037, 300), "bfloat16", ROWS, TURNED, "v6e:2x4", TALL),
    "replicated": planned((130, 70), "float32", '[{"x"}, {}]', '[{"y"}, {}]', "v6e:2x4", TALL),
}


def detours(made: DirectPlan) -> list[FormChoice]:
    return [choice for choice in made.once(choices) if choice.straight is not None]


def packed(made: DirectPlan) -> FormChoice:
    """The best form of tiles in slots that all devices send as much of."""
    found = (
        each
        for each in detours(made)
        if isinstance(each.form, ForwardingForm) and each.form.name == "routed"
    )
    return min(found, key=lambda each: each.cost)


def test_halves_turn_off_where_that_takes_less_time() -> None:
    """Of a permutation all that comes to a device shares a link of the axis travelled last."""
    best, made = choice_of(SWAP), SWAP
    assert isinstance(best.form, ForwardingForm)
    assert best.straight is not None
    assert best.form.schedule.halves
    assert best.seconds < best.straight
    cost = cost_of(
        registry.backend("pallas_tpu").timeline(made), network_of(made.reshard, "v5p:2x2x2")
    )
    assert cost.seconds == best.seconds
    text = alone_in_form(made, best)
    taken, directly = 1e6 * best.seconds, 1e6 * best.straight
    assert (best.form.name, round(taken, 3), round(directly, 3)) == ("relayed", 4.844, 7.432)
    assert f"by the model {taken:.4g} microseconds this way, {directly:.4g} directly." in text
    first, second = (
        re.findall(r"whose digit of stride (\d+) is", part)
        for part in text.partition("The second half:")[::2]
    )
    assert (first, second) == (["1", "2"], ["2", "1"])


@pytest.mark.parametrize(
    ("source", "target", "topology"),
    [
        (ROWS, '[{}, {"x", "y"}]', "v5p:2x2x2"),  # all links carry as much
        (ROWS, TURNED, "v6e:2x4"),  # what is saved is less than what packing takes
        (ROWS, TURNED, "switch:8"),
    ],
)
def test_tiles_go_straight_where_that_takes_no_longer(
    source: str, target: str, topology: str
) -> None:
    made = planned((1024, 512), "float32", source, target, topology)
    assert choice_of(made).form.name == "direct"
    assert all(each.cost >= choice_of(made).cost for each in detours(made))


def test_devices_that_hops_do_not_lead_to_send_directly() -> None:
    """Seven of eight: no digits of theirs lead everywhere."""
    seven = Mesh({"x": 7})
    sides = seven.sharding('[{"x"}, {}]'), seven.sharding('[{}, {"x"}]')
    made = direct_of(sw.plan(sw.Reshard((70, 70), "int32", *sides), "direct", topology="v6e:2x4"))
    assert detours(made) == []


def test_an_order_of_axes_is_that_of_a_torus_with_its_axes_in_that_order() -> None:
    torus = Torus((2, 3, 4), (True, False, True), 1.0, 0.0)
    rng = np.random.default_rng(0)
    sender, receiver = rng.integers(24, size=(2, 100))
    weight = rng.random((1, 100))
    for order in permutations(range(3)):
        turned = replace(
            torus,
            dims=tuple(torus.dims[a] for a in order),
            wrap=tuple(torus.wrap[a] for a in order),
        )
        places = torus.coordinates(np.arange(24))[:, order]
        ids = np.ravel_multi_index(tuple(places.T), turned.dims, order="F")
        wanted = turned.load(ids[sender], ids[receiver], weight, 24).reshape(3, 2, 24)
        found = torus.load(sender, receiver, weight, 24, order).reshape(3, 2, 24)
        for number, axis in enumerate(order):
            np.testing.assert_allclose(found[axis], wanted[number][:, ids], atol=1e-12)


def test_what_may_pay_is_tried() -> None:
    """No form that forwards is tried where sending directly takes the least that is possible."""
    torus = topology_of("v5p:2x2x2")
    assert isinstance(torus, Torus)
    for target, may in ((TURNED, True), ("[{}, {}]", True), (ROWS, False)):
        made = planned((64, 64), "float32", ROWS, target)
        best = min(each.seconds for each in made.once(choices) if each.straight is None)
        assert bool(detours(made)) == may
        assert not may or best > at_least(moved(made), 4, torus)


@pytest.mark.exhaustive
def test_modules_that_turn_off_move_what_they_should(tmp_path: Path) -> None:
    """Every form that forwards, chosen or not, against the oracle, with races on."""
    pytest.importorskip("jax")
    cases, kinds = [], set()
    gather = planned((64, 130), "float32", ROWS, "[{}, {}]")
    for name, made in {**CASES, **STRAIGHT, "gather": gather}.items():
        assert detours(made), name
        for number, choice in enumerate(detours(made)):
            assert isinstance(choice.form, ForwardingForm)
            choice.form.prove(moved(made))
            kinds.add((choice.form.name, choice.form.schedule.halves))
            path = tmp_path / f"case{len(cases)}.py"
            path.write_text(alone_in_form(made, choice))
            cases.append(Case.of(made.reshard, f"{name} {number}", "pallas_tpu", path))
    assert kinds >= {("routed", True), ("gathered", False), ("spread", False), ("spread", True)}
    failed = [r for r in reports_of("pallas_tpu", cases) if r.verdict != "ok"]
    assert not failed, "\n".join(f"{r.name}\n    {r.detail}" for r in failed)


def test_a_half_in_the_wrong_order_and_a_hop_left_out_fail_emission() -> None:
    form = packed(SWAP).form
    assert isinstance(form, ForwardingForm)
    form.prove(moved(SWAP))
    first, second = form.schedule.rounds
    swapped = [
        replace_hop(first.sends, here, there) for here, there in pairwise(range(len(first.sends)))
    ]
    fewer = [Round(first.sends[1:]), Round(first.sends[:-1])]
    for wrong in (*swapped, *fewer):
        schedule = replace(form.schedule, rounds=(wrong, second))
        with pytest.raises(InternalError, match=r"^routed form: "):
            replace(form, schedule=schedule).prove(moved(SWAP))
    aligned = choice_of(SWAP).form
    assert isinstance(aligned, ForwardingForm)
    with pytest.raises(InternalError, match=r"^relayed form: "):
        replace(aligned, schedule=form.schedule).prove(moved(SWAP))


def straight(made: DirectPlan) -> FormChoice:
    """The best form whose hops go along an axis as far as they have to, half of it too."""
    found = [
        each
        for each in detours(made)
        if isinstance(each.form, ForwardingForm)
        and any(hop.by == 2 for hop in each.form.schedule.partners)
    ]
    return min(found, key=lambda each: each.cost)


def test_straight_hops_cross_the_links_between_and_no_more() -> None:
    """On a line of four the third device is one link from the second, where hops that change one
    binary digit cross three."""
    form = straight(LINE).form
    assert isinstance(form, ForwardingForm)
    assert form.digits == ((1, 2), (2, 4))
    assert {hop for hop in form.schedule.partners if hop.extent > 2} == {
        Hop(2, 4, by) for by in (1, 2, 3)
    }
    best = {each.form.digits: each.seconds for each in detours(LINE)}  # type: ignore[union-attr]
    assert best[form.digits] < best[digits_of(8)]


@pytest.mark.parametrize("name", STRAIGHT)
def test_wrong_straight_hops_are_found(name: str, tmp_path: Path) -> None:
    """A hop one device too far, before emission and in the module."""
    pytest.importorskip("jax")
    made, choice = STRAIGHT[name], straight(STRAIGHT[name])
    form = choice.form
    assert isinstance(form, ForwardingForm)
    form.prove(moved(made))
    every = [hop for each in form.schedule.rounds for hop, _ in each.sends if hop.extent == 4]
    right = f"({every[0].stride}, 4, {every[0].by})"
    first = form.schedule.rounds[0]
    sends = [sent._replace(hop=replace(sent.hop, by=1 + sent.hop.by % 3)) for sent in first.sends]
    rounds = (Round(tuple(sends)), *form.schedule.rounds[1:])
    with pytest.raises(InternalError, match=rf"^{form.name} form: "):
        replace(form, schedule=replace(form.schedule, rounds=rounds)).prove(moved(made))
    path, text = tmp_path / "module.py", alone_in_form(made, choice)
    path.write_text(text)
    check_module(path)
    wrong = f"({every[0].stride}, 4, {1 + every[0].by % 3})"
    assert right in text
    path = tmp_path / "wrong.py"
    path.write_text(text.replace(right, wrong))
    with pytest.raises(MismatchError):
        check_module(path)


def replace_hop(sends: tuple, here: int, there: int) -> Round:
    """A round in which what goes over two hops goes over the other."""
    changed = list(sends)
    changed[here] = sends[here]._replace(moves=sends[there].moves)
    changed[there] = sends[there]._replace(moves=sends[here].moves)
    return Round(tuple(changed))


FAULTS = {
    "a half twice": (
        [("(0, 1, 64, 64, 0)", "(0, 1, 0, 64, 0)")],
        r"rank \d writes 'slots' of rank \d",
    ),
    "halves in the wrong order of axes": (
        [
            ("(1, 0, 64, 64, 0)", "FIRST"),
            ("(1, 0, 0, 64, 0)", "(1, 0, 64, 64, 0)"),
            ("FIRST", "(1, 0, 0, 64, 0)"),
        ],
        r"rank \d reads 'slots' of rank \d",
    ),
    "a hop left out": (
        [("SCHEDULE.steps, pltpu", "SCHEDULE.steps[:6], pltpu")],
        r"slot \d of rank \d holds slot",
    ),
}


def check_module(path: Path) -> None:
    """Raise MismatchError for a module that does not deliver, or whose devices do not meet."""
    module = load(path)
    events = trace(module, *programs_of(module), 8)
    check_protocol(events)
    (program,) = programs_of(module)
    check_deliveries(program, events)
    if program.form in ("relayed", "gathered"):
        check_aligned(program, events)


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_found(name: str, tmp_path: Path) -> None:
    pytest.importorskip("jax")
    edits, said = FAULTS[name]
    text = alone_in_form(SWAP, packed(SWAP))
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text(text)
    check_module(right)
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    wrong.write_text(text)
    with pytest.raises(MismatchError, match=f"^{said}"):
        check_module(wrong)


@pytest.mark.parametrize(
    ("topology", "mesh"),
    [
        pytest.param("v5p:2x2x2", FLAT, marks=pytest.mark.slow),
        pytest.param("v6e:4x4", Mesh({"x": 4, "y": 4}), marks=pytest.mark.exhaustive),
        # Along whole rings at once.
        pytest.param("v6e:16x16", Mesh({"x": 16, "y": 16}), marks=pytest.mark.exhaustive),
    ],
)
def test_the_tpu_compiler_takes_what_turns_off(topology: str, mesh: Mesh, tmp_path: Path) -> None:
    try:
        targets.require(targets.parse_targets([topology]), saving=False)
    except InputError as error:
        pytest.skip(" ".join(str(error).split()))
    made = planned((8192, 1024), "bfloat16", ROWS, TURNED, topology, mesh)
    form = choice_of(made).form
    assert isinstance(form, ForwardingForm)
    assert form.name == "relayed"
    assert mesh.size < 256 or Hop(1, 16, 8) in form.schedule.partners
    sw.emit(made, ("pallas_tpu",)).write(tmp_path / "swap")
    (report,) = compile_bundles(tmp_path, [topology], xla=False, time_limit=120)
    assert (report.verdict, report.detail) == ("ok", "")
    stated = re.search(
        r"^WIRE_BYTES = (\d+)  # ", (tmp_path / "swap/pallas_tpu.py").read_text(), re.M
    )
    assert stated is not None
    assert isinstance(report.code, TpuCode)
    assert report.code.wire_bytes == int(stated[1])
