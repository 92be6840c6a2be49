"""Where not all devices send over an offset: only what is wanted is sent, and planted faults of who
sends, at the ends of lines too, and of how much."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from lone import alone_in_form
from sweeps import sampled
from test_tpu_routing import (
    EARLY,
    MESH_8,
    ON_A_RING,
    TRANSPOSE,
    choices,
    events_of,
    forms,
    planned,
    written,
)

from shardwright.codegen.backends.pallas_tpu.phases import choice_of
from shardwright.codegen.backends.pallas_tpu.routed.schedule import Push, Round
from shardwright.codegen.backends.pallas_tpu.routed.strategy import ForwardingForm
from shardwright.codegen.backends.pallas_tpu.verify.contract import programs_of
from shardwright.codegen.backends.pallas_tpu.verify.deliveries import check_deliveries
from shardwright.codegen.backends.pallas_tpu.verify.events import Copy
from shardwright.codegen.backends.pallas_tpu.verify.protocol import check_protocol
from shardwright.codegen.checks.compare import MismatchError
from shardwright.codegen.checks.load import load
from shardwright.codegen.text.context import as_vectors
from shardwright.ir import Mesh
from shardwright.ir.errors import InternalError

UNMET = r"barrier: rank \d writes into rank \d without a signal"
SHARED_FAULTS = {
    "all send at every hop": (
        "return [self.has(start, number, order) for start in starts]",
        "return [True for _ in starts]",
        f"{EARLY}|{UNMET}",
    ),
    "what is sent taken for what comes": (
        "moves[row + 3] > 0",
        "moves[row + 2] > 0",
        rf"{EARLY}|{UNMET}|semaphore '(sent|received)\[\d+\]' of rank \d",
    ),
    "a wait for what does not come": (
        "pl.when(moves[row + 3] > 0)(lambda: wait_for(part, own))",
        "wait_for(part, own)",
        r"semaphore 'received\[\d+\]' of rank \d",
    ),
    # At the ends of lines.
    "a signal to a device that is not there": (
        "pl.when(SCHEDULE.is_device(place))(lambda: signal(semaphore, device))",
        "signal(semaphore, device)",
        r"semaphore '(barrier|met|free\[\d+\])' of rank \d|deadlock: |barrier: ",
    ),
    "as many partners at an end": (
        "count = sum(jnp.int32(SCHEDULE.is_device(place)) for place in partners)",
        "count = len(partners)",
        r"semaphore '(barrier|met)' of rank \d|deadlock: |barrier: ",
    ),
    "lines that go on": (
        "extent) < extent // 2)",
        "extent) <= extent // 2)",
        rf"{EARLY}|semaphore '\w+(\[\d+\])?' of rank \d|deadlock: |barrier: ",
    ),
}


@pytest.mark.parametrize("dense", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_less_than_a_tile_is_found_at_full_size(dense: bool, tmp_path: Path) -> None:
    """Where both ends are told too little, so that semaphores agree."""
    pytest.importorskip("jax")
    old, new = "multiple(moves[row + 3], 8)", "multiple(moves[row + 3] - 8, 8)"
    if dense:
        old, new = "moves[row + 3])", "moves[row + 3] - 1)"
    made = ON_A_RING
    (choice, *_) = (
        each
        for each in choices(made)
        if isinstance(each.form, ForwardingForm)
        and each.form.is_cut
        and each.form.slot.dense == dense
    )
    text = alone_in_form(made, choice)
    assert old in text
    for file, written_ in ("right.py", text), ("wrong.py", text.replace(old, new)):
        (tmp_path / file).write_text(written_)
    right, wrong = (load(tmp_path / file) for file in ("right.py", "wrong.py"))
    check_deliveries(*programs_of(right), events_of(right, 8))
    events = events_of(wrong, 8)
    check_protocol(events)
    with pytest.raises(MismatchError, match=r"^slot \d+ of rank \d (gets|holds slot)"):
        check_deliveries(*programs_of(wrong), events)


QUICKLY = (
    *("all send at every hop", "a wait for what does not come"),
    *("a signal to a device that is not there", "lines that go on"),
)
"""Of who sends, of who waits, of the ends of lines; the long sweep plants all."""
RIGHT = set[str]()
"""Texts without a fault that have been checked."""


@pytest.mark.parametrize("name", sampled(SHARED_FAULTS, *QUICKLY))
def test_planted_faults_are_found_where_not_all_send(name: str, tmp_path: Path) -> None:
    """Along lines."""
    pytest.importorskip("jax")
    old, new, said = SHARED_FAULTS[name]
    (choice, *_) = (
        each
        for each in choices(TRANSPOSE)
        if isinstance(each.form, ForwardingForm) and each.form.lines
    )
    text = alone_in_form(TRANSPOSE, choice)
    assert old in text
    for file, written_ in ("right.py", text), ("wrong.py", text.replace(old, new)):
        (tmp_path / file).write_text(written_)
    if text not in RIGHT:
        right = load(tmp_path / "right.py")
        check_protocol(events_of(right, 8))
        check_deliveries(*programs_of(right), events_of(right, 8))
        RIGHT.add(text)
    with pytest.raises(MismatchError, match=f"^({said})"):
        check_protocol(events_of(load(tmp_path / "wrong.py"), 8))


def test_only_what_is_wanted_is_sent(tmp_path: Path) -> None:
    """A transpose in which each device has few peers: copies are those of tiles, hop by hop."""
    pytest.importorskip("jax")
    made = planned(MESH_8, (256, 512), "float32", '[{"x"}, {"y"}]', '[{"y"}, {"x"}]')
    form = choice_of(made).form
    assert isinstance(form, ForwardingForm)
    events = events_of(load(written(made, tmp_path / "module.py")), 8)
    ends = [(rank, event) for rank, own in enumerate(events) for event in own]
    copies = [e for rank, e in ends if isinstance(e, Copy) and e.to != rank]
    assert len(copies) == sum(devices.size for *_, devices in form.schedule.made(form.digits))
    assert len(copies) <= 8 * len(form.schedule.moves) / 2
    (packed, *_) = (form for form in forms(made) if form.name == "routed")
    assert len({*packed.schedule.starts}) < len(packed.schedule.offsets)


def together(moves: tuple[Push, ...]) -> tuple[Push, ...]:
    """Both halves of what goes between two places as one move."""
    found: dict[tuple[int, int, int], Push] = {}
    for move in moves:
        other = found.get(move[:3])
        halves = (*other.halves, *move.halves) if other else move.halves
        found[move[:3]] = move._replace(halves=tuple(sorted(halves)))
    return tuple(found.values())


def test_halves_of_two_tiles_are_sent_apart() -> None:
    """Where they meet on their way, over one hop: one of them may not be there."""
    mesh = Mesh({"x": 4, "y": 4})
    made = planned(mesh, (1024, 2048), "bfloat16", '[{"y", "x"}, {}]', '[{"x"}, {}]', "v5e:4x4")
    form = next(form for form in forms(made) if form.name == "routed" and form.schedule.halves)
    exchange = as_vectors(made.exchange)
    form.prove(exchange)
    assert form.schedule.halves
    rounds = tuple(
        Round(tuple(sent._replace(moves=together(sent.moves)) for sent in each.sends))
        for each in form.schedule.rounds
    )
    mixed = dataclasses.replace(form.schedule, rounds=rounds)
    assert rounds != form.schedule.rounds
    assert mixed.mixes()
    assert not form.schedule.mixes()
    with pytest.raises(InternalError, match=r"halves of two tiles|a move from place"):
        dataclasses.replace(form, schedule=mixed).prove(exchange)
