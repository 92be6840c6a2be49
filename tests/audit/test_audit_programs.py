"""The audit of programs that XLA compiled, here for CPUs and ahead of time for v5e."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest
from commands import ok
from places import ROOT
from sweeps import sampled

import shardwright as sw
from shardwright.codegen.audit.audit import audit
from shardwright.codegen.audit.report import AuditReport
from shardwright.ir import Mesh

PLATFORMS = ("cpu", "v5e")


@cache
def programs(platform: str) -> dict[str, str]:
    """The HLO of `hlo_programs.PROGRAMS`, by name."""
    needed = {"cpu": "jax", "v5e": "libtpu"}[platform]
    if importlib.util.find_spec(needed) is None:
        pytest.skip(f"needs {needed}")
    env = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }
    worker = [sys.executable, str(ROOT / "tests" / "hlo_programs.py"), platform]
    done = subprocess.run(worker, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def line_of(text: str) -> str:
    """Where a text stands in the file of programs."""
    lines = (ROOT / "tests" / "hlo_programs.py").read_text().splitlines()
    (number,) = (number for number, line in enumerate(lines, 1) if text in line)
    return f"hlo_programs.py:{number}"


def audited(platform: str, name: str, mesh: str) -> AuditReport:
    return audit(programs(platform)[name], Mesh.parse(mesh))


@pytest.mark.parametrize("platform", sampled(PLATFORMS, "cpu"))
def test_involuntary_rematerialization(platform: str, tmp_path: Path) -> None:
    """openxla/xla#15207, jax-ml/jax#21562: named, with the reshard that is wanted, which `emit`
    takes, and what it saves."""
    report = audited(platform, "rematerialized", "x=4,y=2")
    (finding,) = report.findings
    assert finding.kind == "rematerialization"
    assert finding.line.endswith(line_of("with_sharding_constraint(a + b"))
    assert (finding.parts, finding.received, finding.suffices) == (8, 14336, 1792)
    assert (report.received, report.redundant) == (14336, 12544)
    assert report.padded == (14336 if platform == "cpu" else 114688)
    wanted = finding.reshard
    assert wanted is not None
    assert (str(wanted.source), str(wanted.target)) == (
        '[{"y"}, {}, {"x"}]',
        '[{}, {"x", "y"}, {}]',
    )
    assert sw.plan(wanted).traffic.received_max == finding.suffices
    path = tmp_path / "step.hlo"
    path.write_text(programs(platform)["rematerialized"])
    ok("audit", path, "--mesh", "x=4,y=2", "-o", tmp_path / "wanted.toml")
    (table,) = tomllib.loads((tmp_path / "wanted.toml").read_text())["reshard"]
    assert table["name"].startswith("hlo_programs_")
    ok("emit", tmp_path / "wanted.toml", "-o", tmp_path / "out", "--backends", "jax_xla")
    assert (tmp_path / "out" / table["name"] / "jax_xla.py").is_file()


@pytest.mark.parametrize("platform", sampled(PLATFORMS, "cpu"))
def test_without_a_mesh_axes_are_made(platform: str) -> None:
    (finding,) = audit(programs(platform)["rematerialized"]).findings
    assert finding.reshard is not None
    assert str(finding.reshard.source) == '[{"b"}, {}, {"a"}]'
    assert str(finding.reshard.source.mesh) == '<["a"=4, "b"=2]>'


@pytest.mark.slow
def test_a_convolution_that_every_device_computes_whole() -> None:
    """openxla/xla#47945, which XLA's CPU partitioner does; that of v5e does not."""
    report = audited("cpu", "grouped_convolution", "data=8")
    (row,) = report.rows
    assert (row.op, row.over, row.received) == ("all-gather", "data", 7 * 2 * 8 * 8 * 8 * 4)
    (finding,) = report.findings
    assert (finding.kind, finding.parts, finding.suffices) == ("computed whole", 8, None)
    assert finding.name == "jit(program)/conv_general_dilated"
    assert audited("v5e", "grouped_convolution", "data=8").rows == ()


@pytest.mark.parametrize("platform", PLATFORMS)
def test_loops_count_their_turns(platform: str) -> None:
    report = audited(platform, "scanned", "d=2,t=4")
    assert {(row.times, row.exact) for row in report.rows} == {(6, True)}
    assert {row.over for row in report.rows} == {"d", "t"}
    assert all(row.line.endswith(line_of("jax.lax.scan(")) for row in report.rows)
    itemsize = {"cpu": 4, "v5e": 2}[platform]  # f32 weights are gathered as bf16 there
    weights = [row for row in report.rows if row.op == "all-gather" and row.over == "d"]
    assert [row.received for row in weights] == [6 * itemsize * 256 * 128] * 2
    summed = {row.over: row.received for row in report.rows if "reduce" in row.op}
    # On v5e a fusion that keeps a part of a sum is a reduce-scatter.
    whole = {"cpu": 2, "v5e": 1}[platform]
    assert summed == {"t": whole * 6 * 3 * 16 * 128 * 4, "d": whole * 6 * 256 * 128 * 4}


@pytest.mark.parametrize("platform", PLATFORMS)
def test_collectives_of_one_channel_count_each(platform: str) -> None:
    report = audited(platform, "mapped", "d=2,t=4")
    ops = sorted((row.op, row.over) for row in report.rows)
    assert ops == [
        *[("all-gather", "t")] * 4,
        ("all-reduce", "d, t"),
        ("collective-permute", "t"),
        ("reduce-scatter", "d"),
    ]
    gathered = 4 * 3 * 32 * 128 * 4
    assert report.received == gathered + 32 * 128 * 4 + 16 * 128 * 4 + 2 * 4 * 7 // 8


@pytest.mark.parametrize("platform", PLATFORMS)
def test_weights_are_gathered_once_each(platform: str) -> None:
    """On v5e one gather is cut into up to seven fusions, and counts once; a combined sum on CPU
    could be reduce-scatters, and is named."""
    report = audited(platform, "layers", "d=8")
    itemsize = {"cpu": 4, "v5e": 2}[platform]
    weight = 7 * 512 * 1024 * itemsize
    assert sum(row.received == weight for row in report.rows if row.op == "all-gather") == 6
    assert {row.over for row in report.rows} == {"d"}
    named = {finding.kind for finding in report.findings}
    assert named == ({"sum of which a part is kept"} if platform == "cpu" else set())
    assert report.redundant == sum(each.saved for each in report.findings)
