"""What neither interpreter nor compiler sees of a Pallas kernel: planted in emitted modules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cases import describe, random_reshard
from lone import alone

from shardwright.codegen.backends.pallas_tpu.verify.contract import programs_of
from shardwright.codegen.backends.pallas_tpu.verify.events import Copy, Signal, Wait, Window
from shardwright.codegen.backends.pallas_tpu.verify.protocol import check_protocol
from shardwright.codegen.backends.pallas_tpu.verify.trace import Event, trace
from shardwright.codegen.checks.compare import MismatchError
from shardwright.codegen.checks.load import load
from shardwright.codegen.moves import plan
from shardwright.ir import Mesh, Reshard

MESH = Mesh({"x": 2, "y": 4})
# Tiles that are aligned go from shard to shard, others through windows, thin ones in slots.
ALIGNED = Reshard(
    (1024, 2048), "float32", MESH.sharding('[{"x"}, {"y"}]'), MESH.sharding('[{"y"}, {"x"}]')
)
UNEVEN = Reshard(
    (1025, 2047), "int8", MESH.sharding('[{"x"}, {"y"}]'), MESH.sharding('[{"y"}, {"x"}]')
)

THIN = Reshard(
    (160, 160),
    "float32",
    MESH.sharding('[{"x", "y"}, {}]'),
    MESH.sharding('[{}, {"x", "y"}]'),
)
COPIED = Reshard(
    (1024, 2048), "float32", MESH.sharding('[{"y"}, {}]'), MESH.sharding('[{}, {"y"}]')
)
FLAT = Reshard((5001,), "bfloat16", MESH.sharding('[{"x"}]'), MESH.sharding('[{"y"}]'))
SHARED = Reshard((160, 160), "float32", MESH.sharding('[{"y"}, {}]'), MESH.sharding('[{}, {"y"}]'))
FORMS = {"direct": ALIGNED, "windows": UNEVEN, "thin": THIN, "slots": SHARED, "vector": FLAT}
FORMS |= {"replicas": COPIED}
in_every_form = pytest.mark.parametrize("reshard", FORMS.values(), ids=FORMS)


def events(
    reshard: Reshard, folder: Path, *edits: tuple[str, str]
) -> tuple[tuple[Event, ...], ...]:
    """The events of the module of a reshard, after edits of its text, each of which must apply."""
    pytest.importorskip("jax")
    made = plan(reshard)
    text = alone(made, "pallas_tpu")
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    path = folder / "pallas_tpu.py"
    path.write_text(text)
    module = load(path)
    (program,) = programs_of(module)
    return trace(module, program, made.devices, sends=made.traffic.received_total > 0)


def fault(reshard: Reshard, folder: Path, *edits: tuple[str, str]) -> str:
    """What the check says of an edited module."""
    with pytest.raises(MismatchError) as caught:
        check_protocol(events(reshard, folder, *edits))
    return str(caught.value)


@pytest.mark.parametrize("seed", range(30))
def test_emitted_kernels_keep_the_protocol(seed: int, tmp_path: Path) -> None:
    check_protocol(events(random_reshard(seed), tmp_path))


def test_copies_are_the_transfers_of_the_plan(tmp_path: Path) -> None:
    """Where tiles go from shard to shard, each copy is a transfer, at full size."""
    moved = plan(ALIGNED).transfers()
    planned = {
        (s, r, tuple(map(tuple, read)), tuple(map(tuple, write)))
        for s, r, read, write in zip(
            moved.sender.tolist(),
            moved.receiver.tolist(),
            moved.source.tolist(),
            moved.target.tolist(),
            strict=True,
        )
    }
    copied = {
        (rank, event.to, _ends(event.read), _ends(event.write))
        for rank, own in enumerate(events(ALIGNED, tmp_path))
        for event in own
        if isinstance(event, Copy)
    }
    assert copied == planned, describe(ALIGNED)


def _ends(window: Window) -> tuple[tuple[int, int], ...]:
    return tuple((start, start + size) for start, size in window.ranges)


@in_every_form
def test_a_missing_barrier_is_found(reshard: Reshard, tmp_path: Path) -> None:
    """Nobody waits to be told: no race that the interpreter could see, and it compiles."""
    wait = "(lambda: pl.semaphore_wait(barrier, 1))"
    found = fault(reshard, tmp_path, (wait, "(lambda: None)"))
    assert found.startswith("barrier: rank 0 writes into rank ")
    assert " after 0 of " in found


@pytest.mark.parametrize("reshard", [SHARED, COPIED], ids=["slots", "replicas"])
def test_a_short_barrier_is_found(reshard: Reshard, tmp_path: Path) -> None:
    old, new = "(piece.moves)(lambda: pl.sem", "(piece.moves & (number != 4))(lambda: pl.sem"
    found = fault(reshard, tmp_path, (old, new))
    assert found.startswith("barrier: rank 0 writes into rank ")
    assert re.search(r" after (\d) of \d signals$", found)


def test_a_signal_to_a_wrong_peer_is_found(tmp_path: Path) -> None:
    wrong = ("signal(barrier, peer)", "signal(barrier, (peer + 1) % 8)")
    assert "without a signal from it" in fault(ALIGNED, tmp_path, wrong)


LEAVES = {
    "direct": ("(lambda: wait_for(tile, sent))", "(lambda: None)"),
    "replicas": ("(copy.wait_send)", "(lambda: None)"),
    "windows": ("wait_for(within(chunks, slot, held, slots=6), sent.at[slot])", "None"),
    "slots": ("(copy.wait_send)", "(lambda: None)"),
    "thin": ("(lambda: wait_for(x.at[operand(0)], sent))", "(lambda: None)"),
}
COMES = {
    "direct": ("wait_for(y, received)", "None"),
    "replicas": ("wait_for(all_of_y, received)", "None"),
    "windows": ("wait_for(units_at(stage, units), received)", "None"),
    "slots": ("wait_for(slot, received)", "None"),
    "thin": ("wait_for(y, received)", "None"),
}


@pytest.mark.parametrize(
    ("form", "name"), [*zip(LEAVES, LEAVES, strict=True), ("windows", "vector")]
)
def test_missing_waits_are_found(form: str, name: str, tmp_path: Path) -> None:
    sends = fault(FORMS[name], tmp_path, LEAVES[form])
    assert sends.startswith("semaphore 'sent")
    assert " of rank 0: gets " in sends
    receives = fault(FORMS[name], tmp_path, COMES[form])
    assert receives.startswith("semaphore 'received' of rank ")


def test_overlapping_writes_are_found(tmp_path: Path) -> None:
    wrong = ("slot_number(source_shard(me), senders(piece.peer), piece.piece, 1)", "0")
    twice = "two copies write the same place of 'y' of rank "
    assert fault(SHARED, tmp_path, wrong).startswith(twice)
    assert fault(THIN, tmp_path, ("y.at[operand(there)]", "y.at[0]")).startswith(twice)
    found = fault(FLAT, tmp_path, (" - ((shard[0] - met[0]) * 4 + piece) * 1024", ""))
    assert found.startswith("two copies write the same place of 'stage' of rank ")


def test_a_false_hint_is_found(tmp_path: Path) -> None:
    edit = ("pl.multiple_of(", "pl.multiple_of(1 + ")
    assert fault(ALIGNED, tmp_path, edit).startswith("false hint: ")


def test_a_division_of_what_is_negative_is_found(tmp_path: Path) -> None:
    """Kernels truncate."""
    edit = ("rem(number + near[axis] if", "rem(number - near[axis] - 1 if")
    assert fault(UNEVEN, tmp_path, edit) == "a negative number is divided: -1"


def test_a_window_outside_its_buffer_is_found(tmp_path: Path) -> None:
    wrong = ("target_box, PADDED_TARGET_SHAPE,", "target_box, (1024, 1024),")
    found = fault(ALIGNED, tmp_path, wrong)
    assert found == "window outside its buffer: y[(0, 256), (512, 512)] of [256, 512]"


def test_a_deadlock_is_found() -> None:
    """Two devices that wait for each other before they tell each other."""
    window = Window("y", ((0, 1),), (1,))
    traces = tuple(
        (
            Wait("barrier", 1),
            Signal("barrier", 1 - rank, 1),
            Copy(window, window, 1 - rank, "sent", "received"),
            Wait("sent", 1),
            Wait("received", 1),
        )
        for rank in range(2)
    )
    with pytest.raises(MismatchError, match=r"deadlock: rank 0 never gets past Wait"):
        check_protocol(traces)
