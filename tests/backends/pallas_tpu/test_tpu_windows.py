"""Chunks on their way through windows: whom they go to in turn, how many travel at a time, and that
a place in VMEM is free before it is used again. Faults are planted in emitted modules."""

from __future__ import annotations

from pathlib import Path

import pytest
from lone import alone

from shardwright.codegen.backends.pallas_tpu.kernel_forms.windows import SLOTS
from shardwright.codegen.backends.pallas_tpu.verify.contract import programs_of
from shardwright.codegen.backends.pallas_tpu.verify.events import Copy, Wait
from shardwright.codegen.backends.pallas_tpu.verify.protocol import check_protocol
from shardwright.codegen.backends.pallas_tpu.verify.trace import Event, trace
from shardwright.codegen.checks.compare import MismatchError
from shardwright.codegen.checks.load import load
from shardwright.codegen.moves import plan
from shardwright.ir import Mesh, Reshard

DEVICES = 8
MESH = Mesh({"x": DEVICES})
CASES = {
    "matrix": Reshard(
        (3001, 9001), "int8", MESH.sharding('[{"x"}, {}]'), MESH.sharding('[{}, {"x"}]')
    ),
    "vector": Reshard((9_000_001,), "bfloat16", MESH.sharding('[{"x"}]'), MESH.sharding("[{}]")),
}
in_both = pytest.mark.parametrize("reshard", CASES.values(), ids=CASES)

LEAVES = "pl.when(passed >= 6)(lambda: leave(slot))"
READ = "fetch(turn, units).wait()"
FILLED = "fill(window, chunk, moved_by(own, units, now.box), TILING.rolled)"
STARTS = "fetch(1 - turn, next_units).start()"


def events(
    reshard: Reshard, folder: Path, *edits: tuple[str, str]
) -> tuple[tuple[Event, ...], ...]:
    """The events of the module of a reshard, by device, after edits, each of which applies once."""
    pytest.importorskip("jax")
    text = alone(plan(reshard), "pallas_tpu")
    for old, new in edits:
        assert text.count(old) == 1
        text = text.replace(old, new)
    path = folder / "pallas_tpu.py"
    path.write_text(text)
    module = load(path)
    (program,) = programs_of(module)
    assert program.form == "windows"
    assert program.slots == SLOTS
    return trace(module, program, DEVICES)


@in_both
def test_chunks_keep_the_protocol(reshard: Reshard, tmp_path: Path) -> None:
    check_protocol(events(reshard, tmp_path))


def test_receivers_take_turns_that_are_far_apart(tmp_path: Path) -> None:
    """A chunk for every third of eight devices, then again for each."""
    for rank, own in enumerate(events(CASES["matrix"], tmp_path)):
        to = [(e.to - rank) % DEVICES for e in own if isinstance(e, Copy) and e.sent]
        others = DEVICES - 1
        assert to[: 2 * others] == 2 * [3, 6, 1, 4, 7, 2, 5]
        assert len(to) > 2 * others


@in_both
def test_as_many_chunks_travel_as_there_are_slots(reshard: Reshard, tmp_path: Path) -> None:
    for own in events(reshard, tmp_path):
        travel, most = 0, 0
        for event in own:
            travel += isinstance(event, Copy) and bool(event.sent)
            travel -= isinstance(event, Wait) and event.semaphore.startswith("sent")
            most = max(most, travel)
        assert (travel, most) == (0, SLOTS)


@pytest.mark.parametrize("reshard", [CASES["vector"]], ids=["vector"])
@pytest.mark.parametrize(
    ("edits", "buffer"),
    [
        (((LEAVES, "None"), (FILLED, f"{FILLED}; {LEAVES}")), "chunks"),
        (((READ, "None"), (FILLED, f"{FILLED}; {READ}")), "windows"),
        (
            (
                (STARTS, STARTS.replace("1 - turn", "turn")),
                (READ, READ.replace("turn", "1 - turn")),
            ),
            "windows",
        ),
    ],
    ids=["sent before its slot is free", "shifted before it is read", "read into a window in use"],
)
def test_a_place_that_is_not_free_is_found(
    reshard: Reshard, edits: tuple[tuple[str, str], ...], buffer: str, tmp_path: Path
) -> None:
    found = rf"^rank (\d) \w+ '{buffer}' of rank \1 at .* while rank \1 \w+ there$"
    with pytest.raises(MismatchError, match=found):
        check_protocol(events(reshard, tmp_path, *edits))


def test_a_size_that_is_not_kept_is_found(tmp_path: Path) -> None:
    """What leaves is waited for by the size of what was sent from the slot."""
    edit = ("sizes[slot * 2 + axis] = jnp.int32(size)", "sizes[axis] = jnp.int32(size)")
    with pytest.raises(MismatchError, match="SMEM is read before it is written: index"):
        events(CASES["matrix"], tmp_path, edit)
