"""An exchange of tiles, packed or in place at either end, between ranks of which each is late:
random bits, memory that is overwritten as soon as it may be, and planted faults."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import describe, random_reshard
from every_feature import EVERY
from gloo_group import run_group
from gpu_cases import make
from test_sums_over_gloo import planted

from shardwright.codegen import registry
from shardwright.codegen.backends.triton_gpu.phases import exchanges_of, in_place
from shardwright.codegen.checks.case import Case, placement
from shardwright.codegen.checks.compare import MismatchError
from shardwright.codegen.checks.load import load
from shardwright.codegen.checks.oracle import definition as oracle
from shardwright.codegen.moves import plan
from shardwright.codegen.moves.network.timeline import Copies
from shardwright.codegen.moves.xla import Collective
from shardwright.codegen.operations.emit.modules import parts
from shardwright.ir import Mesh, Reshard
from shardwright.ir.dtypes import DTYPES

pytest.importorskip("torch")
pytest.importorskip("triton")

from shardwright.codegen.backends.triton_gpu.verify import calls
from shardwright.codegen.backends.triton_gpu.verify.values import Values

LATER = calls.WAYS["exchanged by CPUs, waited for later"]
BOTH, SENT, RECEIVED, PACKED = ("source", "target"), ("source",), ("target",), ()
TURNED = Mesh({"t": 4}, [1, 2, 3, 0])
OTHERS = Mesh({"t": 2}, [3, 2])
WAYS = {
    # Every rank has tiles of its own, sends and receives.
    "both": make({"x": 4}, (13, 6), '[{"x"}, {}]', "[{}, {}]"),
    "sent": make({"x": 4}, (8, 11), '[{}, {"x"}]', '[{"t"}, {}]', TURNED, dtype="bfloat16"),
    "received": make({"x": 4}, (7, 12), '[{"x"}, {}]', '[{}, {"t"}]', TURNED, dtype="int8"),
    "packed": make({"x": 2, "y": 2}, (3, 5, 6), '[{}, {"x"}, {}]', '[{}, {}, {"y"}]'),
    # Two ranks send to two others, which nothing but their own wait keeps from going on.
    "both, elsewhere": make({"x": 2}, (7, 6), '[{"x"}, {}]', '[{"t"}, {}]', OTHERS),
    "sent, elsewhere": make({"x": 2}, (5, 6), '[{}, {"x"}]', '[{"t"}, {}]', OTHERS),
    "received, elsewhere": make({"x": 2}, (5, 6), '[{"x"}, {}]', '[{}, {"t"}]', OTHERS),
    "packed, elsewhere": make(
        {"x": 2}, (3, 5, 6), '[{}, {"x"}, {}]', '[{}, {}, {"t"}]', OTHERS, dtype="float64"
    ),
}
IN_PLACE = {"both": BOTH, "sent": SENT, "received": RECEIVED, "packed": PACKED}

SUMS = [
    make({"x": 2, "y": 2}, (6, 5), '[{"y"}, {}], unreduced={"x"}', '[{"x"}, {}]'),
    make({"x": 4}, (3, 7), '[{}, {}], unreduced={"x"}', '[{}, {"x"}]'),
    make({"x": 4}, (6, 5), '[{}, {}], unreduced={"x"}', "[{}, {}]"),
]

KEPT = "                wire.keep(shards, held, programs)\n"
STOP = "                yield\n"
TURN = "        return dist.batch_isend_irecv(asked)\n"
LEFT = (
    "        works = dist.batch_isend_irecv(asked)\n"
    '        globals().setdefault("LEFT", []).extend(works)  # they are freed at their end\n'
    "        return works[{}]\n"
)
SAID = (
    "by_pairs(home, group))\n"
    "        assert not wire.in_place and sum(wire.sent) == len(wire.at_once(*wire.buffers())[1])"
)
WAITED = "                for work in works:\n"
HERE = ("both", "sent", "received", "packed")
LATE: dict[str, tuple[dict[str, str], tuple[str, ...], bool]] = {
    "none": ({}, tuple(WAYS), True),
    # As where gloo has tensors on GPUs: this is no fault.
    "nothing is sent by pairs": (
        {'home.type == "cpu" or "cuda:gloo"': '"cpu:gloo"', "by_pairs(home, group))": SAID},
        HERE,
        True,
    ),
    "the own tile waits": ({KEPT + STOP: STOP + KEPT}, HERE, False),
}
"""What is planted, in which ways, and whether all is right nevertheless."""

UNORDERED: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "what comes is not waited for": (
        {TURN: LEFT.format("len(arriving):")},
        {
            "both": "the caller of rank 0 after call 0 reads the result of rank 0, which was never",
            "sent": "call 1 of rank 0 reads memory of rank 0, which was never written",
            "received": "the caller of rank 0 after call 0 reads the result of rank 0, which",
            "both, elsewhere": "the caller of rank 2 after call 0 reads the result of rank 2",
            "sent, elsewhere": "call 1 of rank 2 reads memory of rank 2 without waiting for what "
            "call 0 of rank 2 writes there",
            "received, elsewhere": "the caller of rank 2 after call 0 reads the result of rank 2",
        },
    ),
    "what leaves is not waited for": (
        {TURN: LEFT.format(": len(arriving)")},
        {
            **dict.fromkeys(
                ("both, elsewhere", "sent, elsewhere", "received, elsewhere"),
                "call 1 of rank 2 overwrites memory of rank 2 without waiting for what call 0 of "
                "rank 2 reads there",
            ),
        },
    ),
    "the all-to-all is not waited for": (
        {WAITED: '                globals().setdefault("LEFT", []).extend(works)\n'
         "                for work in works[len(works):]:\n"},
        {
            "packed": "call 1 of rank 0 reads memory of rank 0, which was never written",
            "packed, elsewhere": "call 1 of rank 0 reads memory of rank 0, which was never written",
        },
    ),
    "another call does not wait for the one under way": (
        {"                under_way.wait()\n": "                pass\n"},
        {
            "sent, elsewhere": "call 0 of rank 0 reads memory of rank 0 without waiting for what "
            "call 1 of rank 0 writes there",
            "received, elsewhere": "call 0 of rank 0 reads memory of rank 0 without waiting for "
            "what call 1 of rank 0 writes there",
            "packed, elsewhere": "call 0 of rank 0 reads memory of rank 0 without waiting for "
            "what call 1 of rank 0 writes there",
        },
    ),
    "packed after it is sent": (
        {
            "                wire.pack(shards, packed, programs)\n": "",
            KEPT: KEPT + "                wire.pack(shards, packed, programs)\n",
        },
        dict.fromkeys(
            ("packed", "received"),
            "call 0 of rank 0 reads memory of rank 0 without waiting for what call 0 of rank 0 "
            "writes there",
        ),
    ),
}  # fmt: skip
"""Faults that hang on who comes first, and of the ways that each spoils what is said of it."""


def random_calls(reshard: Reshard, seed: int) -> tuple[list[dict[str, str]], list[dict[int, str]]]:
    """The source shards and the target shards of three tensors of random bits, as hex."""
    size = DTYPES[reshard.dtype]
    rng, sides = np.random.default_rng(seed), ([], [])
    for _ in range(3):
        raw = rng.integers(0, 256, (*reshard.shape, size), np.uint8)
        tensor = raw.view(f"u{size}")[..., 0]
        for side, (sharding, split) in zip(
            sides,
            ((reshard.source, reshard.source_split), (reshard.target, reshard.target_split)),
            strict=True,
        ):
            shards = oracle.shards(placement(sharding, split), tensor)
            side.append({device: shard.tobytes().hex() for device, shard in shards.items()})
    return [{str(device): text for device, text in each.items()} for each in sides[0]], sides[1]


def own(reshard: Reshard) -> dict[int, np.ndarray]:
    """Which bytes of a device's target shard are bytes of its source shard."""
    size = DTYPES[reshard.dtype]
    numbers = np.arange(np.prod(reshard.shape), dtype=np.uint32).reshape(reshard.shape)
    source = oracle.shards(placement(reshard.source, reshard.source_split), numbers)
    target = oracle.shards(placement(reshard.target, reshard.target_split), numbers)
    nothing = np.zeros(0, np.uint32)
    return {
        device: np.isin(shard, source.get(device, nothing)).repeat(size)
        for device, shard in target.items()
    }


def bytes_of(text: str) -> np.ndarray:
    """The bytes that hex says."""
    return np.frombuffer(bytes.fromhex(text), np.uint8)


def is_right(rank: dict[str, Any], reshard: Reshard, wanted: list[dict[int, str]]) -> bool:
    """Whether a rank got what it should, and had its own part before it waited."""
    device = rank["device"]
    if device not in wanted[0]:
        return rank["results"] == [None] * 3 and rank["stays"]
    early, first = bytes_of(rank["early"]), bytes_of(wanted[0][device])
    mine = own(reshard)[device]
    had = np.array_equal(early[mine], first[mine])
    return had and rank["stays"] and rank["results"] == [each[device] for each in wanted]


def text_of(name: str) -> str:
    """The emitted module of a way."""
    made = plan(WAYS[name], "direct")
    assert exchanges_of(made)[0].once(in_place) == IN_PLACE[name.split(",")[0]]
    return parts(made, "triton_gpu", "shardwright emit", single_file=True, features=EVERY)[0].text


def values_of(name: str) -> Values:
    """What is moved in a way."""
    return Values.of(Case.of(WAYS[name], "case", "triton_gpu", Path()))


@pytest.mark.slow
def test_exchanges_of_ranks_that_are_late(tmp_path: Path) -> None:
    """As they are, all right, whoever is late. Faults here are seen whoever comes first."""
    cases, expected = [], []
    for fault, (edits, names, right) in LATE.items():
        for name in names:
            path = tmp_path / f"case{len(cases)}.py"
            path.write_text(planted(edits)(text_of(name)))
            given, wanted = random_calls(WAYS[name], len(cases))
            case = {"task": "hurried", "module": str(path), "world": 4, "late": 0.02}
            cases.append(case | {"calls": given})
            expected.append((fault, name, wanted, right))
    ranks = run_group(4, cases, tmp_path)
    for number, (fault, name, wanted, right) in enumerate(expected):
        found = [is_right(lines[number], WAYS[name], wanted) for lines in ranks]
        assert all(found) == right, (fault, name, found)


@pytest.mark.parametrize("name", WAYS)
def test_uses_in_order(name: str, tmp_path: Path) -> None:
    path = tmp_path / "case.py"
    path.write_text(text_of(name))
    calls.check_way(load(path), values_of(name), LATER)


@pytest.mark.parametrize("fault", UNORDERED)
def test_uses_in_no_order(fault: str, tmp_path: Path) -> None:
    """Found by what ranks wait for, not by who happens to come first."""
    edits, spoilt = UNORDERED[fault]
    for number, (name, said) in enumerate(spoilt.items()):
        path = tmp_path / f"case{number}.py"
        path.write_text(planted(edits)(text_of(name)))
        # Values go too: where the number of a call is read too early, that is seen first.
        with pytest.raises(MismatchError, match=f"{re.escape(said)}|are in different calls"):
            calls.check_way(load(path), values_of(name), LATER)


SAID = 16
"""The bytes of the number of a call."""


def rows_of(listed: Any) -> list[int]:
    """The bytes of entries of tiles, of which there is one tensor."""
    entries = [each for each in listed.entries if not each.source and not each.target]
    return [each.rows * each.columns for each in entries]


SWEEP = [*WAYS.values(), *SUMS, *map(random_reshard, range(0, 60, 10))]


def test_stages_have_the_bytes_that_modules_copy(tmp_path: Path) -> None:
    """Where every GPU is a host: what the busiest device packs, keeps and unpacks, as it is listed
    in modules, is what stages are priced by; a stage that copies nothing is none."""
    seen = set()
    for number, reshard in enumerate(SWEEP):
        ids = {*reshard.source.mesh.device_ids, *reshard.target.mesh.device_ids}
        if len(ids) == 1:
            continue
        made = plan(reshard, "direct", topology=f"h100:{max(ids) + 1}x1")
        path = tmp_path / f"case{number}.py"
        path.write_text(
            parts(made, "triton_gpu", "shardwright emit", single_file=True, features=EVERY)[0].text
        )
        expected = []
        for phase in load(path)._HOST.phases:
            wires = [phase.processes._wire(each, "cpu") for each in phase.exchange.ranks]
            packed, kept, unpacked = (
                2 * max(sum(rows_of(listed)) for listed in of)
                for of in zip(*((w._packing, w._keeping, w._unpacking) for w in wires), strict=True)
            )
            ends = phase.tiles.together
            expected += [] if "source" in ends else [("tiles are packed", packed)]
            expected += [("batch_isend_irecv" if ends else "all_to_all_single", kept)]
            expected += [] if "target" in ends else [("tiles are unpacked", unpacked)]
            for end, size in (("source", packed), ("target", unpacked)):
                most = max(w._ends[end] - SAID * len(w._numbers[end]) for w in wires)
                assert 2 * most == size, describe(reshard)
            seen.add(ends)
        stages = [
            (stage.what, stage.nbytes if isinstance(stage, Copies) else stage.copied)
            for stage in registry.backend("triton_gpu").timeline(made).stages
            if not isinstance(stage, Collective)
        ]
        assert stages == expected, describe(reshard)
    assert seen == {BOTH, SENT, RECEIVED, PACKED}
