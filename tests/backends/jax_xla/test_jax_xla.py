"""The XLA module: its rounds, what its programs move, its derivative; wrong ones are caught.

Values are compared with the oracle in `test_execution.py`, for this backend as for the others.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import all_pairs, describe, random_reshard
from lone import alone, write_bundle
from places import TESTS
from running import reports_of, verified

import shardwright as sw
from shardwright.codegen.backends.base import Request
from shardwright.codegen.backends.jax_steps.blocks import Collectives
from shardwright.codegen.backends.jax_xla import context as jax_xla
from shardwright.codegen.backends.jax_xla.boxes import (
    MOST_PADDING,
    MOST_PADDING_AT_ONCE,
    Boxes,
    ranks_by_shard,
)
from shardwright.codegen.backends.jax_xla.fetches import Fetches
from shardwright.codegen.backends.jax_xla.groups import Groups
from shardwright.codegen.backends.jax_xla.rounds import Rounds, rounds_of
from shardwright.codegen.checks.compiled.report import TpuCode
from shardwright.codegen.checks.load import load
from shardwright.codegen.moves import plan
from shardwright.codegen.operations.bundles.compile import compile_bundles
from shardwright.codegen.operations.verify import Case
from shardwright.codegen.text.context import as_vectors
from shardwright.ir import InputError, Mesh, Reshard
from shardwright.ir.exchange import HolderRule

HERE = TESTS
CUBE = {"x": 2, "y": 2, "z": 2}
COLLECTIVE = {"all_to_all": "all-to-all", "all_gather": "all-gather"}


def make(axes: dict[str, int], shape: tuple[int, ...], source: str, target: str) -> Reshard:
    mesh = Mesh(axes)
    return Reshard(shape, "float32", mesh.sharding(source), mesh.sharding(target))


def of_one_order(count: int) -> list[Reshard]:
    """Random reshards between meshes that list the same devices in the same order."""
    reshards = (random_reshard(seed) for seed in range(10 * count))
    return [r for r in reshards if as_vectors(plan(r).exchange).same_order][:count]


def planned(reshard: Reshard) -> set[str]:
    """The collectives that the module of a reshard may be compiled to."""
    match jax_xla.how_of(plan(reshard)):
        case Collectives() as block:
            lines = "".join(block.lines("y"))
            return {hlo for op, hlo in COLLECTIVE.items() if f"lax.{op}(" in lines}
        case Groups():
            return {"all-to-all"}
        case Fetches() as how:
            found = {"collective-permute": how.permutes, "all-gather": how.members > 1}
            return {op for op, is_there in found.items() if is_there}
        case Rounds(count=count):
            return {"collective-permute"} if count else set()


def programs(plans: list[sw.Plan], folder: Path) -> list[dict[str, Any]]:
    """What the compiled programs of the modules of plans move (`xla_process.py`)."""
    lines = []
    for number, made in enumerate(plans):
        home = folder / f"case{number}"
        write_bundle(made, "jax_xla", home)
        lines.append(f"{home}\n")
    forced = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    run = subprocess.run(
        [sys.executable, HERE / "xla_process.py"],
        input="".join(lines),
        env=os.environ | forced,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return [json.loads(line) for line in run.stdout.splitlines()]


def check_programs(reshards: list[Reshard], folder: Path) -> None:
    """The HLO has the planned collectives and no others, which receive WIRE_BYTES, both ways."""
    pytest.importorskip("jax")
    for reshard, said in zip(reshards, programs([*map(plan, reshards)], folder), strict=True):
        name, made = describe(reshard), plan(reshard)
        assert said["received"] == said["wire"], name
        assert said["wire"] <= (1 + MOST_PADDING_AT_ONCE) * made.traffic.received_max, name
        assert set(said["collectives"]) <= planned(reshard), name
        assert said["larger"], name
        if "backward" in said:
            back = said["backward"]
            reverse = Reshard(
                reshard.shape, reshard.dtype, reshard.target, reshard.source,
                reshard.target_split, reshard.source_split,
            )  # fmt: skip
            assert back["received"] == back["wire"], name
            most = (1 + MOST_PADDING_AT_ONCE) * plan(reverse).traffic.received_max
            assert back["wire"] <= most, name
            assert set(back["collectives"]) <= planned(reverse), name


def test_programs_move_the_bytes(tmp_path: Path) -> None:
    check_programs(all_pairs({"x": 2, "y": 3}, (6, 6))[5::58] + of_one_order(2), tmp_path)


@pytest.mark.slow
def test_random_programs_move_the_bytes(tmp_path: Path) -> None:
    check_programs(of_one_order(12), tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("half", range(2))
def test_more_programs_move_the_bytes(half: int, tmp_path: Path) -> None:
    check_programs(all_pairs({"x": 2, "y": 4}, (16, 8))[half::2], tmp_path)


@cache
def sampled() -> tuple[tuple[Reshard, Boxes, Rounds], ...]:
    """Reshards with their whole boxes and the rounds they take, whatever else would move them."""
    reshards = [random_reshard(seed) for seed in range(50)]
    reshards += all_pairs({"x": 2, "y": 4}, (8, 16))[::19]
    exchanges = [as_vectors(plan(reshard).exchange) for reshard in reshards]
    whole = [Boxes.of(replace(exchange, rule=HolderRule("turns"))) for exchange in exchanges]
    return tuple(
        (reshard, boxes, rounds_of(exchange, Boxes.of(exchange), boxes))
        for reshard, boxes, exchange in zip(reshards, whole, exchanges, strict=True)
    )


def test_rounds_are_permutations_with_little_padding(tmp_path: Path) -> None:
    """From the module's text itself: what `_rounds()` makes, for every kind of numbers."""
    kinds: Counter[str] = Counter()
    for number, (reshard, boxes, rounds) in enumerate(sampled()):
        made = plan(reshard)
        if not isinstance(jax_xla.how_of(made), Rounds):
            continue
        kinds[rounds.kind] += 1
        moved = rounds_by_text(write_bundle(made, "jax_xla", tmp_path / f"case{number}"))
        travels = [any(a != b for a, b in pairs) for pairs, _ in moved]
        assert sum(travels) == rounds.count >= rounds.least, describe(reshard)
        pairs = [pair for pairs, _ in moved for pair in pairs]
        check_pairs(reshard, boxes, pairs)
        received: Counter[int] = Counter()
        for sent, window in moved:
            for ends in zip(*sent, strict=True):
                assert len(set(ends)) == len(ends), describe(reshard)
            for sender, receiver in sent:
                received[receiver] += window * (sender != receiver)
        wire = max(received.values(), default=0), received.total()
        assert wire == rounds.wire, describe(reshard)
        exact = int(boxes.shape.prod(axis=1)[~boxes.local].sum())
        assert wire[1] <= (1 + MOST_PADDING) * exact, describe(reshard)
    assert len(kinds) >= 4, kinds
    assert kinds["table"] < kinds.total() / 2, kinds


def check_pairs(reshard: Reshard, boxes: Boxes, pairs: list[tuple[int, int]]) -> None:
    """Every receiver has each of its boxes once, from whichever device holds it."""
    exchange = as_vectors(plan(reshard).exchange)
    shard = {
        int(rank): number
        for number, holders in enumerate(ranks_by_shard(exchange, exchange.source))
        for rank in holders
    }
    expected = zip(boxes.sender.tolist(), boxes.receiver.tolist(), strict=True)
    got, wanted = (
        sorted((shard[sender], receiver) for sender, receiver in ends) for ends in (pairs, expected)
    )
    assert got == wanted, describe(reshard)


def rounds_by_text(path: Path) -> list[tuple[list[tuple[int, int]], int]]:
    """The pairs and the window's elements of each round, by the module's own code."""
    call = re.search(r"rounds = ((?:rounds_of|listed_rounds)\([^)]*\))", path.read_text())
    assert call is not None
    rounds = eval(call[1], vars(load(path)))
    return [(each.pairs, int(np.prod(each.window))) for each in rounds]


@pytest.mark.parametrize(
    ("source", "target", "shape", "how"),
    [
        ('[{"x"}, {"y"}]', '[{"y"}, {"x"}]', (12, 12), "Rounds"),
        ('[{"x", "y"}, {}]', '[{"x"}, {"y"}]', (8, 8), "all_to_all(x, "),
        ('[{}, {"x", "y"}]', '[{"x", "y"}, {}]', (8, 8), 'all_to_all(x, ("x", "y"), '),
        ('[{"x", "y"}, {}]', '[{"x"}, {}]', (8, 8), "all_gather(x, "),
        ('[{"x", "y"}, {}]', "[{}, {}]", (9, 8), "Rounds"),
        ('[{}, {"y"}]', '[{"y"}, {}]', (31, 30), "jnp.pad(x, ((0, 1), (0, 0)))"),
        ('[{"x", "y"}, {}]', "[{}, {}]", (1001, 8), "slice_in_dim(x, 0, 1001"),
        ('[{"x"}, {}]', '[{"x"}, {"y"}]', (8, 8), "dynamic_slice_in_dim"),
        ('[{}, {"x", "y"}]', '[{"y"}, {}]', (8, 8), "Groups"),
        ('[{}, {"x"}]', '[{}, {"y"}]', (8, 8), "Fetches"),
        ('[{"x", "y"}, {}]', '[{"y"}, {}]', (1005, 8), "Fetches"),
        ('[{"x"}, {"y"}]', '[{}, {"x"}]', (8, 8), "Fetches"),
        ('[{"x"}, {}]', '[{"y"}, {"x"}]', (1200, 1201), "Fetches"),  # padded before it is cut
    ],
)
def test_transport(source: str, target: str, shape: tuple[int, ...], how: str) -> None:
    """Few collectives where the exchange is that, rounds where padding would be too much."""
    found = jax_xla.how_of(plan(make({"x": 2, "y": 4}, shape, source, target)))
    lines = "".join(found.lines("y")) if isinstance(found, Collectives) else type(found).__name__
    assert how in lines


def test_an_axis_of_one_device_makes_no_collective() -> None:
    reshard = make({"x": 2, "y": 1}, (8, 8), '[{"x"}, {"y"}]', '[{"x", "y"}, {}]')
    found = jax_xla.how_of(plan(reshard))
    assert isinstance(found, Collectives)
    assert [*found.lines("y")] == ["y = x"]


def test_holders_of_its_own_take_fewer_rounds() -> None:
    """The plan's holders of a column each send to four devices in pieces; whole tiles that both
    share take two rounds, as many as a device lacks tiles."""
    made = plan(make({"x": 2, "y": 4}, (64, 64), '[{"y"}, {}]', '[{"x"}, {"y"}]'))
    how = jax_xla.how_of(made)
    assert isinstance(how, Rounds)
    assert (made.exchange.rule.pieces, how.kind, how.count, how.least) == (2, "table", 2, 2)


FAULTS = {
    "other places": ("= box.read, box.write", "= box.write, box.read"),
    "other shapes": ("window = tuple(map(max,", "window = tuple(map(min,"),
    "a round less": ("for key in sorted(rounds)]", "for key in sorted(rounds)[:-1]]"),
    "padding": ("end = jnp.where(along < ", "end = jnp.where(along <= "),
    "another sender": ("_TARGET, senders,", "_TARGET, lambda p: senders(7 - p),"),
}


ALL_TAKE = {"all take": ("if reduce is not None or not self.takes.all():", "if False:")}
FETCH_FAULTS = {
    "from others": ("AXES, FETCHES)", "AXES, FETCHES[::-1])"),
    "of the receiver": ("reads[sender] = np", "reads[receiver] = np"),
}
GRID_FAULTS = {
    "along others": ("dim + 1, -1)", "2 - dim, -1)"),
    "lying": ("GRID = (2, 3)", "GRID = (3, 2)"),
}
GROUP_FAULTS = {
    "unsorted": ("in sorted(each)", "in sorted(each, reverse=True)"),
    "joined otherwise": (".transpose(2, 0, 3, 1, 4)", ".transpose(2, 1, 3, 0, 4)"),
}


def test_planted_faults(tmp_path: Path) -> None:
    """A module with any of them fails against the oracle; without, it passes."""
    pytest.importorskip("jax")
    planted = (
        (make({"x": 2, "y": 4}, (503, 12), '[{"x"}, {"y"}]', '[{"y", "x"}, {}]'), FAULTS),
        (make({"x": 2, "y": 3}, (6, 6), '[{"x"}, {"y"}]', '[{"y"}, {"x"}]'), ALL_TAKE),
        (make(CUBE, (8, 12), '[{}, {"y", "z"}]', '[{"y"}, {"x"}]'), FETCH_FAULTS),
        (make({"x": 6, "y": 2}, (12, 12), '[{"y"}, {"x"}]', '[{}, {"y"}]'), GRID_FAULTS),
        (make(CUBE, (4, 8, 8), '[{}, {"x"}, {"y"}]', '[{"x", "y"}, {}, {}]'), GROUP_FAULTS),
    )
    cases = []
    for number, (reshard, faults) in enumerate(planted):
        text = alone(plan(reshard), "jax_xla")
        for name, (old, new) in {f"right {number}": ("", ""), **faults}.items():
            assert old in text, name
            path = tmp_path / f"{name.replace(' ', '_')}.py"
            path.write_text(text.replace(old, new, 1) if old else text)
            cases.append(Case.of(reshard, name, "jax_xla", path))
    verdicts = {report.name: report.verdict for report in reports_of("jax_xla", cases)}
    failed = {name: "failed" for _, faults in planted for name in faults}
    assert verdicts == {f"right {number}": "ok" for number in range(len(planted))} | failed


def test_a_bundle_is_verified_with_its_derivative(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    reshard = make({"x": 2, "y": 2}, (6, 5), '[{"x"}, {}]', '[{}, {"x", "y"}]')
    sw.emit(reshard, backends=("jax_xla",), gradient=True).write(tmp_path / "one")
    (report,) = verified(tmp_path)
    assert (report.verdict, report.detail) == ("ok", "")
    assert {"values", "padding", "derivative", "backward"} <= set(report.checks)


def test_too_many_transfers_are_refused() -> None:
    everywhere = make({"x": 1024}, (1024, 1024), '[{"x"}, {}]', '[{}, {"x"}]')
    jax_xla.refuse(plan(everywhere))
    uneven = make({"x": 1024}, (1024, 1025), '[{"x"}, {}]', '[{}, {"x"}]')
    with pytest.raises(InputError) as caught:
        jax_xla.refuse(plan(uneven))
    assert str(caught.value) == (
        "target: the reshard has too many transfers for jax_xla to trace\n"
        "got: 525312 transfers\n"
        "expected: at most 262144, or a reshard by collectives over whole axes"
    )


@pytest.mark.slow
def test_the_tpu_compiler_takes_it(tmp_path: Path) -> None:
    """A bundle without a Pallas module is compiled as plain JAX; its collectives are XLA's."""
    pytest.importorskip("libtpu")
    reshards = {
        "rounds": make({"x": 2, "y": 4}, (1024, 512), '[{"x"}, {"y"}]', '[{"y"}, {"x"}]'),
        "groups": make({"x": 2, "y": 4}, (1024, 512), '[{}, {"x", "y"}]', '[{"y"}, {}]'),
        "gather": make({"x": 2, "y": 4}, (1024, 512), '[{"x", "y"}, {}]', "[{}, {}]"),
    }
    for name, reshard in reshards.items():
        sw.emit(reshard, backends=("jax_xla",), gradient=True).write(tmp_path / name)
    reports = compile_bundles([tmp_path], ["v5e:2x4"])
    assert [(report.verdict, report.detail) for report in reports] == [("ok", "")] * len(reshards)
    for report in reports:
        assert isinstance(report.code, TpuCode)
        text = jax_xla.xla_text(Request(plan(reshards[report.name]), "shardwright emit"))
        assert report.code.wire_bytes == text.wire_bytes, report.name
