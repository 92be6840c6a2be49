"""Axes that are unreduced in the target only, by modules with kernels: one holder has the value."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from gpu_cases import make
from programs import SELF_CHECKS, output, started
from running import check, runner
from sums import OPERATORS, pairs_with_terms, placed

import shardwright as sw
from shardwright.codegen.checks.case import Case
from shardwright.codegen.moves import plan
from shardwright.codegen.operations.bundles.verify import verify
from shardwright.codegen.operations.emit.modules import parts
from shardwright.ir import Reshard
from shardwright.ir.plan import Plan

BACKENDS = ("pallas_tpu", "triton_gpu")
PLACED = placed(range(400))

GRID, FOUR = {"x": 2, "y": 4}, {"x": 4}
NAMED = {
    "alone": (make(FOUR, (16, 512), '[{"x"}, {}]', '[{}, {}], unreduced={"x"}'), None),
    "unaligned": (
        make(FOUR, (70, 300), '[{"x"}, {}]', '[{}, {}], unreduced=min{"x"}', dtype="bfloat16"),
        None,
    ),
    "largest": (
        make(FOUR, (16, 512), '[{"x"}, {}]', '[{}, {"x":(1)2}], unreduced=max{"x":(2)2}'),
        None,
    ),
    "reduced_too": (
        make(GRID, (64, 512), '[{}, {}], unreduced={"y"}', '[{"y"}, {}], unreduced={"x"}'),
        None,
    ),
    "kept_too": (
        make(
            {"x": 2, "y": 2, "z": 2},
            (6, 5),
            '[{}, {"z"}], unreduced={"x", "y"}',
            '[{"y"}, {}], unreduced={"x", "z"}',
        ),
        None,
    ),
    "forwarded": (
        make(GRID, (6, 5), '[{"x"}, {}], unreduced={"y"}', '[{}, {}], unreduced={"x"}'),
        "v5e:2x4",
    ),
}
"""Reshards, each with a topology, of each form of kernel."""


def direct(reshard: Reshard, topology: str | None = None) -> Plan:
    if reshard.dtype == "float64":  # which no TPU has
        reshard = replace(reshard, dtype="float32")
    return plan(reshard, "direct", topology=topology)


@pytest.mark.exhaustive
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("number", range(len(PLACED)))
def test_random(number: int, backend: str, tmp_path: Path) -> None:
    """Beside kept and reduced axes, or alone; other orders of devices, any dtype and operator."""
    check(backend, [direct(PLACED[number])], tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("number", range(37))
@pytest.mark.parametrize("operator", OPERATORS)
def test_all_pairs(operator: str, number: int, backend: str, tmp_path: Path) -> None:
    """Of shardings of a vector on a 2 x 2 mesh with any axes unreduced."""
    pairs = pairs_with_terms()
    assert len(pairs) == 37
    source, target = (
        replace(side, operator=operator) for side in (pairs[number].source, pairs[number].target)
    )
    check(backend, [direct(replace(pairs[number], source=source, target=target))], tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", NAMED)
def test_forms(name: str, backend: str, tmp_path: Path) -> None:
    check(backend, [direct(*NAMED[name])], tmp_path)


@pytest.mark.exhaustive
def test_bundles_with_derivatives(tmp_path: Path) -> None:
    """The cotangent of a value is that of the term that has it."""
    for name in ("alone", "reduced_too", "kept_too"):
        sw.emit(NAMED[name][0], strategy="direct", gradient=True).write(tmp_path / name)
    for report in verify(tmp_path):
        assert (report.verdict, report.detail) == ("ok", ""), report.name
        assert {"derivative", "backward"} <= set(report.checks)


def test_traffic_is_the_least() -> None:
    """What one holder lacks, and nothing for the others."""
    traffic = direct(make(FOUR, (16, 8), '[{"x"}, {}]', '[{}, {}], unreduced={"x"}')).traffic
    assert traffic.received_total == traffic.bound_received_total == 4 * 12 * 8


@pytest.mark.parametrize("backend", BACKENDS)
def test_modules_say_which_term_has_the_value(backend: str) -> None:
    text = parts(direct(*NAMED["largest"]), backend, "c")[0].text
    said = (
        'Along "x":(2)2 the term of coordinate 0 has the value, every other term the lowest value'
    )
    assert said in " ".join(text.split())
    assert "new=1" in text
    assert 'empty=float("-inf")' in text


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_self_checks(backend: str, tmp_path: Path) -> None:
    paths = []
    for name in ("kept_too", "largest", "unaligned"):
        paths.append(tmp_path / f"{name}.py")
        text = parts(direct(*NAMED[name]), backend, "c", single_file=True)[0].text
        paths[-1].write_text(text)
    said = output(started(SELF_CHECKS, 9, *paths, TRITON_INTERPRET="1")).splitlines()
    assert len(said) == 3
    assert all("all sends match receives" in line for line in said)


FAULTS = {
    ("triton_gpu", "another_value"): ('empty=float("-inf")', "empty=0.0"),
    ("triton_gpu", "on_all"): ("new=1", "new=0"),
    ("triton_gpu", "on_another"): (
        "return any(self.target.box(receiver)[last - 2 * self.new : last : 2])",
        "return not any(self.target.box(receiver)[last - 2 * self.new : last : 2])",
    ),
    ("pallas_tpu", "another_value"): ('empty=float("-inf")', "empty=0.0"),
    ("pallas_tpu", "not_filled"): ("        if new:\n", "        if False:\n"),
    ("pallas_tpu", "on_another"): (
        "first > 0 for first in firsts",
        "first < 1 for first in firsts",
    ),
}
"""By backend and name: words of a module, and what stands there instead."""
SWEPT = {("pallas_tpu", "another_value"), ("pallas_tpu", "not_filled"), ("triton_gpu", "on_all")}


@pytest.mark.parametrize(
    ("backend", "name"),
    [each if each not in SWEPT else pytest.param(*each, marks=pytest.mark.slow) for each in FAULTS],
)
def test_planted_faults(backend: str, name: str, tmp_path: Path) -> None:
    """Another value than the lowest, on another term, or none: by the values of devices."""
    words, instead = FAULTS[backend, name]
    made = direct(*NAMED["largest"])
    text = parts(made, backend, "c", single_file=True)[0].text
    assert words in text, "nothing is planted"
    path = tmp_path / "case.py"
    path.write_text(text.replace(words, instead))
    report = runner(backend).run(Case.of(made.reshard, name, backend, path))
    assert report.verdict == "failed"
    assert re.search("wrong; element|stored 0 times|IndexError|outside|same ranges", report.detail)
