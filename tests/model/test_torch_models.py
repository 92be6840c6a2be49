"""Models between gloo processes: right, within the limit, and errors on all ranks for faults."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from places import TESTS
from sweeps import kept
from toy_models import TOYS, Held, Moved, bits, planned, stored

TIMEOUT_S = 2.5
LIMIT = 4096


@dataclass(frozen=True)
class Scenario:
    """A call of all ranks."""

    name: str
    model: list[Moved]
    fault: dict[str, Any] = field(default_factory=dict)
    limit: int = LIMIT
    digest: bool = False
    calls: int = 1


def small(width: int = 8) -> list[Moved]:
    """Two stages, each on a device, to one packed server, and a tensor that moves on device 0
    alone."""
    return [
        *TOYS["qwen"]([0, 1], [2], width),
        Moved(
            "kept.",
            stored([0], "a=1", {"x": [3]}, {"x": "[{}]"}, "float32"),
            stored([0], "a=1", {"x": [3]}, {"x": "[{}]"}, "float32"),
        ),
    ]


def run(scenarios: list[Scenario], folder: Path) -> dict[str, dict[int, str]]:
    """Run scenarios; return the errors of ranks. Results are checked, and what ranks say of
    memory and progress."""
    asked, wanted = [], {}
    for each in scenarios:
        place = folder / each.name.replace(" ", "_")
        place.mkdir()
        data = planned(each.model, each.limit).data
        (place / "model.json").write_text(json.dumps(data))
        before, wanted[each.name] = bits(each.model, len(each.name))
        dtypes = {
            name: kind["dtype"]
            for member in data["members"]
            for kind in [data["kinds"][member[0]]]
            for name in member[6]
        }
        for device, held in before.items():
            np.savez(place / f"{device}.npz", **{f"{dtypes[n]} {n}": x for n, x in held.items()})
        asked.append(
            {
                "folder": str(place), "ranks": len(devices(each.model)), "fault": each.fault,
                "timeout": TIMEOUT_S, "digest": each.digest, "calls": each.calls,
            }
        )  # fmt: skip
    listed = folder / "scenarios.jsonl"
    listed.write_text("".join(f"{json.dumps(each)}\n" for each in asked))
    command = [sys.executable, str(TESTS / "model_ranks.py"), str(listed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return {
        each.name: ended(Path(said["folder"]), each, wanted[each.name])
        for each, said in zip(scenarios, asked, strict=True)
    }


def devices(model: list[Moved]) -> list[int]:
    """All device ids of a model."""
    return sorted(
        {d for each in model for side in (each.source, each.target) for d in side.mesh.device_ids}
    )


def ended(place: Path, scenario: Scenario, after: Held) -> dict[int, str]:
    """Return the errors of the ranks of a scenario, and check what they have without one."""
    assert json.loads((place / "ended.json").read_text())["hung"] == 0, scenario.name
    ids, errors = devices(scenario.model), {}
    for rank, device in enumerate(ids):
        out, error = place / f"{rank}.out.npz", place / f"{rank}.txt"
        if error.exists():
            errors[rank] = error.read_text()
        elif out.exists():
            check_held(np.load(out), after.get(device, {}))
            report = json.loads((place / f"{rank}.json").read_text())
            assert report["staging"] <= scenario.limit
            for done, total, _ in report["progress"][-1:]:
                assert done == total
    return errors


def check_held(found: Any, wanted: dict[str, np.ndarray]) -> None:
    """A rank has these bits."""
    assert {key.split()[1] for key in found} == {*wanted}
    for key in found:
        bits_of = found[key].view(wanted[key.split()[1]].dtype)
        np.testing.assert_array_equal(bits_of, wanted[key.split()[1]], key)


FAULTS = {
    "None": ("None", r"ValueError: rank 0: state: got None for model\.layers\.0"),
    "missing": ("missing", r"ValueError: rank 0: state: got no key for model\.layers\.0"),
    "extra": (
        "extra",
        "ValueError: rank 0: state: got no such tensor, which device 0 does not store",
    ),
    "dtype": ("dtype", "ValueError: rank 0: state, .*: got torch.float64 .*, expected"),
    "shape": ("shape", r"ValueError: rank 0: state, .*: got torch.bfloat16 \(15, 8\), expected"),
    "strided": ("not contiguous", "ValueError: rank 0: state, .*not contiguous, expected"),
    "no tensor": ("no tensor", "ValueError: rank 0: state, .*: got int, expected torch.bfloat16"),
    "meta": ("meta", "ValueError: rank 0: state: got tensors on cpu, meta"),
    "empty": (
        "no dict",
        "ValueError: rank 0: state: got no key for .*, expected a tensor for each",
    ),
    "out": ("out", "ValueError: rank 2: out: got no such tensor, which device 2 does not store"),
    "shared": ("shared", "ValueError: rank 2: out: a tensor shares memory with another"),
    "other model": ("other model", "ValueError: ranks differ: rank 0 calls with model another"),
    "timeout": (
        "timeout",
        "ValueError: rank 0: timeout: got '3', expected a positive number of seconds",
    ),
    "no function": ("no function", "ValueError: rank 0: progress: got 3, expected a function"),
    "digest on one": ("digest", "ValueError: ranks differ: .*digest=True.*digest=False"),
    "progress": ("progress", "RuntimeError: rank 0: ZeroDivisionError"),
    "late": (
        "late",
        "(TimeoutError: rank .: rank 0 has not called within|ConnectionError: rank .: )",
    ),
    "dead before": (
        "dead before",
        "ConnectionError: rank .: (rank 0 has not called|other ranks): the conn",
    ),
    "dead between": (
        "dead between",
        "ConnectionError: rank .: bucket .*: the connection closed",
    ),
    "slow": (
        "slow",
        "(TimeoutError: rank .: bucket .*within 2.5 s|ConnectionError: rank .: bucket)",
    ),
    "lost": (
        "lost",
        "TimeoutError: rank 2: bucket 1 of 3, from rank 0"
        "|(Timeout|Connection)Error: rank [01]: bucket 3 of 3, to rank 2",
    ),
    "changed": ("changed", "RuntimeError: rank 2: bucket 1, model.layers.0.*: device . did not"),
    "changed digest": ("changed", "RuntimeError: rank 2: bucket ., .*: device . did not receive"),
}
QUICK = ("None", "changed", "dead between")


def planted(names: Iterable[str]) -> list[Scenario]:
    """Scenarios of faults."""
    found = []
    for name in names:
        kind, _ = FAULTS[name]
        fault = {"kind": kind, "rank": 2 * (name in ("out", "shared")), "seconds": 2 * TIMEOUT_S}
        fault |= {"changed digest": {"byte": 0, "batch": 2}}.get(name, {})
        limit = LIMIT if name == "lost" else 1200
        found.append(Scenario(name, small(), fault, limit=limit, digest="changed" in name))
    return found


def check_faults(errors: dict[str, dict[int, str]], names: Iterable[str]) -> None:
    """Every rank but a dead one has an error that says what is wrong."""
    for name in names:
        kind, expected = FAULTS[name]
        alive = {0, 1, 2} - ({0} if "dead" in kind else set())
        assert {*errors[name]} == alive, (name, errors[name])
        for rank, said in errors[name].items():
            assert re.match(expected, said), (name, rank, said)
        if kind in ("late", "slow", "lost"):  # the first rank to wait too long says for whom
            assert any(said.startswith("TimeoutError") for said in errors[name].values()), name


def test_quick(tmp_path: Path) -> None:
    """Three ranks, in buckets, twice, with digests; and a few faults."""
    right = Scenario("right", small(), digest=True, calls=2, limit=1200)
    errors = run([right, *planted(QUICK)], tmp_path)
    assert errors.pop("right") == {}
    check_faults(errors, QUICK)


@pytest.mark.slow
def test_faults(tmp_path: Path) -> None:
    """Faults end in an error on every rank, in time."""
    others = [name for name in FAULTS if name not in QUICK]
    check_faults(run(planted(others), tmp_path), others)


WORK = 1 << 20, 3 << 20
"""Bytes that a rank may use beside messages: for tables and objects, and with digests, which are
computed 512 KiB at a time."""


@pytest.mark.parametrize("toy", kept(TOYS, "llama"))
def test_memory(toy: str) -> None:
    """By the system no rank grows by more than the limit while it moves what is several times as
    large, beside what it stores before and after."""
    limit = 8 << 20
    command = [sys.executable, str(TESTS / "model_memory.py"), toy, "768", str(limit)]
    done = subprocess.run(
        command,
        env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "262144"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    ranks = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(ranks) == 6, done.stderr[-2000:]
    assert max(each["stored"] for each in ranks) > 5 * limit
    for each in ranks:
        for digest, work in zip((False, True), WORK, strict=True):
            said = each[f"digest={digest}"]
            assert said["staged"] <= limit
            assert said["grew"] <= said["staged"] + work, ranks


@pytest.mark.slow
def test_toy_models(tmp_path: Path) -> None:
    """Toys on 4, 8 and 12 devices, disjoint and overlapping, with little memory and with much."""
    scenarios = []
    for name, toy in TOYS.items():
        for trainer, server in (
            ([0, 1], [2, 3]),
            ([3, 1, 0, 2], [0, 1, 2, 3]),
            ([*range(8)], [8, 9, 10, 11]),
            ([4, 5, 6, 7], [0, 1, 2, 3, 4, 5, 6, 7]),
        ):
            for limit in (1500, 1 << 20):
                called = f"{name} {len(trainer)} {len(server)} {limit} {trainer[0]}"
                scenarios.append(
                    Scenario(called, toy(trainer, server), limit=limit, digest=limit < 4096)
                )
    errors = run(scenarios, tmp_path)
    assert {name: said for name, said in errors.items() if said} == {}
