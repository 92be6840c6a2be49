"""Tiles that go from source shard to target shard over others, and are in slots only on their way:
when they do, modules in the interpreter, planted faults, what the model says, the compiler."""

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
from test_tpu_gathers import (
    COLUMNS,
    COME,
    RING,
    ROWS,
    SEND,
    TURNED,
    checked_in_form,
    form_of,
    in_chunks,
    planned,
    run_each,
)

from shardwright.codegen.backends.pallas_tpu.kernel_forms.relayed import unplaced
from shardwright.codegen.backends.pallas_tpu.strategy import FormChoice, choices, fastest
from shardwright.codegen.backends.pallas_tpu.terms import moved
from shardwright.codegen.backends.pallas_tpu.timeline import timeline
from shardwright.codegen.backends.pallas_tpu.verify.halves import check_halves
from shardwright.codegen.backends.pallas_tpu.verify.order import Traces
from shardwright.codegen.checks.compare import MismatchError
from shardwright.codegen.checks.compiled.job import Job, What
from shardwright.codegen.moves.network.timeline import Copies, cost_of
from shardwright.codegen.moves.plan import network_of
from shardwright.codegen.operations.compile import targets
from shardwright.codegen.operations.compile.pool import outcomes
from shardwright.codegen.operations.verify import Case
from shardwright.ir import InputError, Mesh
from shardwright.ir.errors import InternalError
from shardwright.ir.plan import DirectPlan
from shardwright.ir.transfers import enumerate_transfers


def relays(made: DirectPlan) -> list[FormChoice]:
    return [choice for choice in made.once(choices) if choice.form.name == "relayed"]


def relayed(made: DirectPlan) -> FormChoice:
    """The best of them."""
    return min(relays(made), key=lambda choice: choice.cost)


CASES = {
    "all to all": planned((64, 1024), "float32", ROWS, COLUMNS),
    "halves": planned((512, 1024), "float32", ROWS, COLUMNS, RING),
    "columns to rows": planned((64, 2048), "float32", COLUMNS, ROWS),
    "some": planned((128, 1024), "bfloat16", '[{"x", "y"}, {}]', '[{"x"}, {"y"}]'),
    "three dimensions": planned(
        (16, 64, 130), "bfloat16", '[{"x", "y"}, {}, {}]', '[{}, {"y", "x"}, {}]'
    ),
    "64 bits": planned((64, 1024), "int64", ROWS, COLUMNS),
    "replicated": planned((32, 256), "float32", '[{"y"}, {}]', '[{}, {"x"}]'),
    "other order": planned((64, 1024), "float32", ROWS, COLUMNS, other=TURNED),
    "nothing kept": planned(
        (64, 256), "float32", ROWS, ROWS, other=Mesh({"x": 2, "y": 4}, [3, 2, 1, 0, 7, 6, 5, 4])
    ),
    "along lines": planned((64, 1024), "float32", '[{"x"}, {"y"}]', '[{"y"}, {"x"}]'),
    "some on lines": planned((256, 1024), "bfloat16", '[{"y"}, {"x"}]', '[{}, {"y"}]'),
    "onto others": planned(
        (64, 1024),
        "float32",
        '[{"x"}, {}]',
        '[{}, {"y"}]',
        "v5e:4x4",
        Mesh({"x": 4}, [0, 5, 10, 15]),
        Mesh({"y": 8}, [3, 2, 5, 6, 9, 8, 12, 15]),
    ),
    "sums": planned((64, 1024), "float32", '[{"y"}, {}], unreduced={"x"}', '[{}, {"y", "x"}]'),
}
# Why tiles do not go so: their ends, or their shapes.
OTHERS = {
    "uneven": (planned((66, 1024), "float32", ROWS, COLUMNS), "tiles have several shapes"),
    "rows of bytes": (planned((64, 1024), "int8", ROWS, COLUMNS), "a tile is not aligned"),
    "lanes": (planned((64, 512), "float32", ROWS, COLUMNS), "a tile is not aligned"),
}


@pytest.mark.parametrize(
    "name", sampled(CASES, "halves", "three dimensions", "nothing kept", "onto others", "sums")
)
def test_aligned_tiles_are_not_packed(name: str) -> None:
    """And only what is on its way is in slots."""
    made = CASES[name]
    choice, packed = relayed(made), form_of(routes(made)[0]).schedule
    form, shared = form_of(choice), form_of(choice).schedule.is_shared
    form.prove(moved(made))
    # Where offsets share places these are few, and of what is sent none is left over.
    assert form.slots <= packed.places - len(packed.offsets) * (not shared)
    assert choice.figures.staging_bytes == form.itemsize * form.slot.elements * form.slots
    if name != "nothing kept":  # there little is packed, and the result is copied once more
        assert fastest(made.once(choices)) == choice
        stages = form.stages(choice.figures, moved(made), reduces=name == "sums")
        copies = {stage.what for stage in stages if isinstance(stage, Copies)}
        last = set() if name == "sums" else {"XLA copies a result that leaves the program"}
        assert last <= copies <= last | {"XLA lays shards out"}


def routes(made: DirectPlan) -> list[FormChoice]:
    return [choice for choice in made.once(choices) if choice.form.name == "routed"]


@pytest.mark.parametrize("name", sampled(OTHERS, "lanes"))
def test_others_are(name: str) -> None:
    made, why = OTHERS[name]
    form = form_of(routes(made)[0])
    assert relays(made) == []
    assert unplaced(moved(made), (0, 1), form.itemsize) == why


@pytest.mark.parametrize("seed", range(6))
def test_every_tile_is_where_it_stands(seed: int) -> None:
    """By brute force, of random reshards: tiles are of one shape, and start at multiples of it; and
    where that is so of all, they go so."""
    rng = random.Random(seed)
    shape = tuple(rng.choice([8, 20, 64, 256, 1024]) for _ in range(rng.choice([1, 2, 3])))
    sides = []
    for _ in range(2):
        dims = [list[str]() for _ in shape]
        for axis in rng.sample(["x", "y"], rng.choice([1, 2, 2])):
            dims[rng.randrange(len(shape))].append(axis)
        parts = (", ".join(f'"{axis}"' for axis in each) for each in dims)
        sides.append(f"[{', '.join(f'{{{part}}}' for part in parts)}]")
    dtype, other = rng.choice(["float32", "int8", "bfloat16"]), rng.choice([None, TURNED])
    made = planned(shape, dtype, *sides, rng.choice(["v5e:2x4", RING]), other=other)
    exchange = moved(made)
    tiles = exchange.once(enumerate_transfers)
    widths = set(map(tuple, (tiles.tensor[:, :, 1] - tiles.tensor[:, :, 0]).tolist()))
    found = relays(made)
    for choice in found:
        form = form_of(choice)
        form.prove(exchange)
        assert {form.slot.held} == widths
        for ranges in (tiles.source, tiles.target):
            assert not (ranges[:, :, 0] % np.array(form.slot.held)).any()
    wide = all(len(widths) == 1 and size % 128 == 0 for each in widths for size in each)
    if wide and routes(made) and exchange.rule.pieces == 1 and len(shape) > 1:
        assert found


def test_wrong_ends_fail_emission() -> None:
    made = CASES["all to all"]
    exchange, form = moved(made), form_of(relayed(made))
    with pytest.raises(InternalError, match="relayed form: tiles have several shapes"):
        form.prove(moved(OTHERS["uneven"][0]))
    packed = next(c.form.schedule for c in routes(made) if form_of(c).lines == form.lines)
    with pytest.raises(
        InternalError, match="relayed form: two tiles use the same place of a shard"
    ):
        dataclasses.replace(form, schedule=packed).prove(exchange)
    less = dataclasses.replace(form.slot, held=(4, 128))
    with pytest.raises(InternalError, match="relayed form: a tile is not sent whole"):
        dataclasses.replace(form, slot=less).prove(exchange)


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(["halves", "onto others", "sums"], marks=pytest.mark.slow),
        pytest.param([*CASES], marks=pytest.mark.exhaustive),
    ],
    ids=["some", "all"],
)
def test_modules_move_what_they_should(names: list[str], tmp_path: Path) -> None:
    """Against the oracle, in the interpreter, with races on; as a whole, in halves and chunks."""
    pytest.importorskip("jax")
    kinds = run_each([(name, CASES[name], relayed(CASES[name])) for name in names], tmp_path)
    assert names != [*CASES] or kinds == {(a, b) for a in (False, True) for b in (False, True)}


def checked(made: DirectPlan, path: Path, *edits: tuple[str, str]) -> Traces:
    """What the module of a reshard does, checked as `verify` does, after edits of its text."""
    return checked_in_form(made, in_chunks(relayed(made)), path, *edits)


# Where slots are used again.
SIXTEEN = planned((256, 2048), "float32", ROWS, COLUMNS, "v5e:4x4", Mesh({"x": 4, "y": 4}))
KEEP = "    pl.when(moves[row] > 0)(keep.start)\n"
KEPT = "    pl.when(moves[row] > 0)(keep.wait)"
FREE = """\
        if step.told:
            hear(number)
"""
TELL = """\
        if step.told:
            tell(hop(me, *step.back), free.at[np.int32(number)])
"""
FAULTS: dict[str, tuple[tuple[tuple[str, str], ...], str]] = {
    # By vector clocks: what is sent on may still be written, or read.
    "sent on before it has come": (
        ((COME, ""), (SEND, SEND + COME)),
        r"rank \d reads 'slots' of rank \d at .* while rank \d writes there",
    ),
    "sent before the slot is free": (
        ((FREE, ""), (TELL, "")),
        r"rank \d+ writes 'slots' of rank \d+ at .* while rank \d+ (reads|writes) there",
    ),
    # By the boxes of the tensor.
    "out of the source shard again": (
        (("copy(before, ", "copy(leaves, "),),
        r"rank \d sends \[\d+, \d+\) x .* of the tensor to the place of .* of rank \d",
    ),
    "the tile of another device": (
        (("schedule.farther(me, going)", "schedule.farther(me, offsets[0])"),),
        r"rank \d sends .* of the tensor to the place of",
    ),
    "the place of another tile": (
        (("schedule.farther(goal, come, -1)", "schedule.farther(goal, by, -1)"),),
        r"rank \d sends .* of the tensor to the place of|two copies write the same place of 'y'",
    ),
    "into a slot at the end": (
        ((", arrives))", ", after))"),),
        r"rank 0 receives \d+ elements of its result, expected: \d+|window outside its buffer.*|"
        r"rank \d writes 'slots' of rank \d at .*",
    ),
    "an own tile that is not copied": (
        ((KEEP, ""), (KEPT, "    pass")),
        r"rank 0 receives \d+ elements of its result, expected: \d+",
    ),
    # By the sums of semaphores.
    "no wait for the own tile": (
        ((KEPT, "    pass"),),
        r"semaphore 'received\[\d+\]' of rank 0: gets \d+ more than it waits for",
    ),
    "a skipped step": (
        (
            (
                "for number, step in enumerate(steps):",
                "for number, step in enumerate(steps[1:]):",
            ),
        ),
        r"(semaphore|deadlock|rank \d).*",
    ),
}


@cache
def check_right(name: str) -> None:
    """Without a fault, once for all of them."""
    with tempfile.TemporaryDirectory() as folder:
        right = checked({**CASES, "sixteen": SIXTEEN}[name], Path(folder) / "right.py")
    check_halves([(number, right) for number in range(2)])


@pytest.mark.parametrize(
    "name", sampled(FAULTS, *(name for name in FAULTS if name != "sent before the slot is free"))
)
def test_planted_faults_are_found(name: str, tmp_path: Path) -> None:
    pytest.importorskip("jax")
    edits, said = FAULTS[name]
    made = CASES["halves"] if name != "sent before the slot is free" else SIXTEEN
    check_right("halves" if made is CASES["halves"] else "sixteen")
    with pytest.raises(MismatchError, match=f"^({said})"):
        checked(made, tmp_path / "wrong.py", *edits)


def test_the_interpreter_finds_what_is_sent_too_early(tmp_path: Path) -> None:
    """Out of a slot, before it has come there: a race, or poison."""
    pytest.importorskip("jax")
    made, path = CASES["replicated"], tmp_path / "wrong.py"
    text = alone_in_form(made, relayed(made))
    assert COME in text
    path.write_text(text.replace(COME, "").replace(SEND, SEND + COME))
    (report,) = reports_of("pallas_tpu", [Case.of(made.reshard, "early", "pallas_tpu", path)])
    assert report.verdict == "failed"
    assert "race" in report.detail or "element" in report.detail


def test_an_all_to_all_takes_three_quarters_of_the_time() -> None:
    """Over eight devices of a v5e, where packing took a third."""
    made = planned(
        (8192, 8192), "bfloat16", '[{"x"}, {}]', '[{}, {"x"}]', "v5e:2x4", Mesh({"x": 8})
    )
    assert made.prediction is not None
    network = network_of(made.reshard, made.prediction.topology)
    assert 1e6 * cost_of(timeline(made), network).seconds == pytest.approx(385, abs=1)


@pytest.mark.exhaustive
def test_they_compile_in_both_widths(tmp_path: Path) -> None:
    """In several orders of dimensions, as a whole and in halves, in chunks."""
    topology = "v5e:4x4"
    try:
        targets.require(targets.parse_targets([topology]), saving=False)
    except InputError as error:
        pytest.skip(" ".join(str(error).split()))
    mesh = Mesh({"x": 4, "y": 4})
    plans = [
        planned((4096, 4096), "bfloat16", ROWS, COLUMNS, topology, mesh),
        planned((2048, 2048), "int8", ROWS, '[{"x"}, {"y"}]', topology, mesh),
        planned(
            (16, 64, 130), "float32", '[{"x", "y"}, {}, {}]', '[{}, {"y"}, {}]', topology, mesh
        ),
    ]
    jobs, widths = [], list[What](["module", "x64"])
    for made in plans:
        choice = relayed(made)
        for each in (choice, in_chunks(choice)):
            path = tmp_path / f"case{len(jobs)}.py"
            path.write_text(alone_in_form(made, each))
            jobs += [Job(what, "pallas_tpu", "pallas_tpu", str(path), topology) for what in widths]
    assert {outcome.error for outcome in outcomes(jobs, 120)} == {""}
