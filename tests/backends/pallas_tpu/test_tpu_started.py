"""A start and an end of a reshard around a program's own work: schedules, protocol, misuse."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from lone import write_bundle
from places import TESTS
from sweeps import sampled

from shardwright.codegen import registry
from shardwright.codegen.backends.pallas_tpu.verify.contract import programs_of
from shardwright.codegen.backends.pallas_tpu.verify.halves import HalvesTraces, check_halves
from shardwright.codegen.backends.pallas_tpu.verify.protocol import check_protocol
from shardwright.codegen.backends.pallas_tpu.verify.trace import trace, traced_half
from shardwright.codegen.checks.compare import MismatchError
from shardwright.codegen.checks.load import load
from shardwright.codegen.moves import plan
from shardwright.ir import Mesh, Reshard

pytest.importorskip("jax")

GRID = Mesh({"x": 2, "y": 4})


def between(source: str, target: str, dtype: str = "float32") -> Reshard:
    return Reshard((1024, 2048), dtype, GRID.sharding(source), GRID.sharding(target))


RESHARDS = {
    "some keep a tile": between('[{"x"}, {"y"}]', '[{"y"}, {"x"}]'),
    "all keep a tile": between('[{"x"}, {"y"}]', "[{}, {}]", "bfloat16"),
    "whole shards": between('[{"x", "y"}, {}]', '[{"y", "x"}, {}]', "float16"),
    "bool": between('[{"x", "y"}, {}]', '[{}, {"x", "y"}]', "bool"),
}
LATER = "    each(2, tell)\n    each(2, hear)\n"


def traced(reshard: Reshard, folder: Path, *edits: tuple[str, str]) -> HalvesTraces:
    """The events of a module, after edits of its text, each of which must apply."""
    path = write_bundle(plan(reshard), "pallas_tpu", folder / "bundle", features=("start",))
    for file, old, new in ((path, *edit) for edit in edits):
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))
    module = load(path)
    (program,) = programs_of(module)
    starts, ends = (traced_half(module, program, kernel) for kernel in program.kernels)
    return HalvesTraces(starts, ends, trace(module, program, 8))


@pytest.mark.parametrize("name", sampled(RESHARDS, "some keep a tile", "all keep a tile"))
def test_halves_keep_the_protocol(name: str, tmp_path: Path) -> None:
    """Two under way, with a whole one before the end of the first."""
    halves = traced(RESHARDS[name], tmp_path)
    check_protocol(halves.wholes)
    check_halves(halves.calls())


def fault(calls: tuple) -> str:
    with pytest.raises(MismatchError) as caught:
        check_halves(calls)
    return str(caught.value)


def test_planted_faults_of_halves(tmp_path: Path) -> None:
    """Nobody is heard to have heard; tiles set out before any is met; an end before its start."""
    halves = traced(RESHARDS["some keep a tile"], tmp_path)
    early = tuple(
        tuple(event for event in own if getattr(event, "semaphore", "") != "heard")
        for own in halves.starts
    )
    found = fault(HalvesTraces(early, halves.ends, halves.wholes).calls())
    assert re.fullmatch(
        r"halves: rank \d writes into rank \d, which has not begun that call", found
    )
    found = fault(((0, halves.ends), (0, halves.starts)))
    assert found.startswith("halves: rank 0 never gets past Wait(semaphore='received 0'")


def test_a_start_that_meets_nobody_is_found(tmp_path: Path) -> None:
    halves = traced(RESHARDS["some keep a tile"], tmp_path, (LATER, ""))
    assert "which has not begun that call" in fault(halves.calls())


def run(target: str, reshard: Reshard, folder: Path, *names: str) -> dict:
    """What the programs become."""
    path = write_bundle(plan(reshard), "pallas_tpu", folder / "bundle", features=("start",))
    compiler = registry.backend("pallas_tpu").compiler
    assert compiler is not None
    given = {key: value for key, value in compiler.environment(folder).items() if value}
    given["XLA_FLAGS"] = "--xla_force_host_platform_device_count=9"
    words = [sys.executable, str(TESTS / "started_process.py"), target, str(path), *names]
    found = subprocess.run(words, capture_output=True, text=True, env=os.environ | given)
    assert found.returncode == 0, found.stderr[-3000:]
    result: dict = json.loads(found.stdout)
    return result


def schedule(text: str) -> list[tuple[str, str]]:
    """Names and right sides of the instructions of a program, as they are scheduled."""
    assert "is_scheduled=true" in text
    body = text[text.index("\nENTRY") :]
    return re.findall(r"^ *(?:ROOT )?%([\w.-]+) = (.*)$", body, re.MULTILINE)


def overlaps(text: str) -> list[bool]:
    """Whether the matmul is between start and end, of every start; an end takes what its start has
    made, from where it is. Raises AssertionError where anything is copied on the way."""
    lines = schedule(text)
    place = {name: number for number, (name, _) in enumerate(lines)}
    sides = dict(lines)
    (product,) = (name for name, side in lines if "dot_general" in side and " fusion(" in side)
    found = []
    for name, side in lines:
        if "tpu_custom_call" not in side:
            continue
        given = re.search(r"custom-call\((.*?)\), custom_call_target", side)
        assert given is not None
        operands = re.findall(r"%([\w.-]+)", given[1])
        if len(operands) == 4:
            parts = [re.search(r"get-tuple-element\(%([\w.-]+)\)", sides[o]) for o in operands]
            (start,) = {part[1] if part else "" for part in parts}
            assert "tpu_custom_call" in sides[start], f"{name} takes what is copied"
            found.append(place[start] < place[product] < place[name])
    return found


@pytest.mark.parametrize(
    ("name", "target", "x64"),
    [
        pytest.param("some keep a tile", "v6e:2x4", "0", marks=pytest.mark.exhaustive),
        pytest.param("whole shards", "explicit v6e:2x4", "1", marks=pytest.mark.slow),
        pytest.param("all keep a tile", "v5p:2x2x2", "0", marks=pytest.mark.exhaustive),
    ],
)
def test_work_is_scheduled_between_start_and_end(
    name: str, target: str, x64: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("libtpu")
    monkeypatch.setenv("JAX_ENABLE_X64", x64)
    found = run(target, RESHARDS[name], tmp_path, "ordered", "unordered", "crossed")
    assert overlaps(found["ordered"]) == [True]
    assert overlaps(found["unordered"]) == [False]
    assert overlaps(found["crossed"]) == [True, True]


@pytest.mark.slow
def test_a_result_is_copied_only_where_it_leaves_the_program(tmp_path: Path) -> None:
    """As its price says (`TimelineCost.used`)."""
    pytest.importorskip("libtpu")
    reshard = RESHARDS["all keep a tile"]
    found = run("v6e:2x4", reshard, tmp_path, "leaving", "used")
    shape = ",".join(map(str, reshard.shape))
    copies = {
        name: sum(
            side.startswith(f"bf16[{shape}]") and bool(re.search(r"\} copy\(", side))
            for _, side in schedule(text)
        )
        for name, text in found.items()
    }
    assert copies == {"leaving": 1, "used": 0}


SMALL = Reshard(
    (32, 1024), "float32", GRID.sharding('[{"x"}, {"y"}]'), GRID.sharding('[{"y"}, {"x"}]')
)


ALONE = (
    "NotImplementedError: reshard_start supports neither jax.vmap nor derivatives: call "
    "reshard instead, or, for derivatives, pass stop_gradient(x)"
)


@pytest.mark.slow
def test_interpreted_and_misused(tmp_path: Path) -> None:
    found = run("cpu", SMALL, tmp_path, "ordered", "crossed")
    assert found["ordered"] == [True]
    assert found["crossed"] == [True, True, True, True]
    assert found["misuse"] == {
        "outside": "TypeError: reshard_start: got an array outside jax.jit, expected a traced one",
        "of another shape": "ValueError: source array, as pad(x) makes it: got (1, 1024) of "
        "float32, expected (32, 1024) of float32",
        "twice": "ValueError: reshard_done: got a reshard that is already done, expected one "
        "in flight",
        "late": "ValueError: then: got a reshard that is already done, expected one in flight",
        "no start": "TypeError: reshard_done: got ArrayImpl, expected a handle of reshard_start",
        "a batch": ALONE,
        "differentiated": ALONE,
        "never done": "reshard_start: tiles are still in flight, call reshard_done",
    }
