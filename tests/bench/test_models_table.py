"""The table of whole models is that of the programs, and no row of ours is above the others'."""

from __future__ import annotations

import os
import subprocess
import sys

import model_cases
import program_patterns
import pytest
from places import ROOT, TESTS

import shardwright as sw

MODES = ("as_shardy", "cheapest")


def table() -> dict[str, list[float]]:
    text = (ROOT / "bench" / "models.md").read_text()
    rows = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {
        name.strip(): [float(each.replace(",", "")) for each in figures]
        for name, *figures in rows[1:]
    }


def test_no_row_is_above_the_least_of_the_others() -> None:
    """In either mode; every cell is known."""
    found = table()
    assert found.keys() == {case.name for case in model_cases.cases()}
    for name, (as_shardy, cheapest, *others) in found.items():
        assert len(others) == 3, name
        assert cheapest <= as_shardy <= min(others), name


@pytest.mark.parametrize("mode", MODES)
def test_rows_are_what_programs_receive(mode: str) -> None:
    """Those of experts and of decoding, which are planned in a second."""
    for case in model_cases.cases():
        if case.name.startswith(("experts", "decoding")):
            sides = {"in_shardings": case.inputs, "out_shardings": case.outputs}
            mesh = sw.Mesh(case.mesh)
            program = sw.partition(case.fn, *case.avals, mesh=mesh, mode=mode, **sides)
            said = table()[case.name][MODES.index(mode)]
            assert said == round(program.bytes_received / 2**10, 1), case.name


MICRO_BATCHES = """
from bench.program_bytes import _column, cases
(make,) = [make for name, make in cases("shardy") if name.startswith("8 micro")]
print(_column("shardy", make()))
"""


def test_loops_of_shardys_passes_count_their_turns() -> None:
    """A sum of 7 MiB in each of 8 turns; in a process of its own, which a pass may abort."""
    paths = os.pathsep.join(map(str, (TESTS, ROOT)))
    flags = "--xla_force_host_platform_device_count=8"
    env = {**os.environ, "PYTHONPATH": paths, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", MICRO_BATCHES]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)
    assert done.stdout.split() == [str(8 * 7 * 2**20)], done.stderr[-3000:]


def test_rows_of_patterns_are_what_programs_receive() -> None:
    """A local form for the best of a split dimension, and halos for a shift, among them."""
    first, _, _ = (ROOT / "bench" / "program_bytes.md").read_text().partition("\n## ")
    lines = first.splitlines()
    rows = {line.split(" | ")[0].strip("| "): line.split(" | ")[1:3] for line in lines}
    for each in program_patterns.patterns():
        for said, mode in zip(rows[each.name], MODES, strict=True):
            sides = {"in_shardings": each.inputs, "out_shardings": each.output, "mode": mode}
            program = sw.partition(each.fn, *each.avals, mesh=each.mesh, **sides)
            assert said == f"{program.bytes_received / 2**20:.3f}", (each.name, mode)
    assert max(map(float, rows["top 50 of a split vocabulary"])) <= 0.175
    assert max(map(float, rows["a shift by one token"])) <= 0.065
