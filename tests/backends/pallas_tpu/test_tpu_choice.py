"""Which form a TPU module has: of those about as fast as the fastest, the one that takes a reviewer
the fewest lines to read. In the windows form, which then is rarer, small reshards run too."""

from __future__ import annotations

import ast
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from cases import random_reshard
from lone import alone_in_form
from places import ROOT
from running import reports_of
from sweeps import sampled, swept

import shardwright as sw
from bench.trust import code_lines
from shardwright.codegen import registry
from shardwright.codegen.backends.base import Request
from shardwright.codegen.backends.pallas_tpu import context as pallas_tpu
from shardwright.codegen.backends.pallas_tpu.phases import checked, choice_of
from shardwright.codegen.backends.pallas_tpu.review import SLOWER
from shardwright.codegen.backends.pallas_tpu.strategy import (
    MARGIN,
    FormChoice,
    choices,
    fastest,
    preferred,
)
from shardwright.codegen.moves.network.timeline import cost_of
from shardwright.codegen.moves.plan import network_of
from shardwright.codegen.operations.verify import Case
from shardwright.codegen.spec.config import load_toml
from shardwright.codegen.text.support import support_files
from shardwright.ir.plan import DirectPlan, direct_of

ROW, EIGHT, FLAT = sw.Mesh({"x": 4}), sw.Mesh({"x": 2, "y": 4}), sw.Mesh({"x": 4, "y": 2})
TURNED = '[{"x"}, {}]', '[{}, {"x"}]'
SWAPPED = '[{"x"}, {"y"}]', '[{"y"}, {"x"}]'


def planned(
    shape: tuple[int, ...],
    source: str,
    target: str,
    mesh: sw.Mesh = ROW,
    topology: str | None = None,
) -> DirectPlan:
    sides = mesh.sharding(source), mesh.sharding(target)
    return direct_of(sw.plan(sw.Reshard(shape, "float32", *sides), "direct", topology=topology))


THIN = planned((20, 50), *TURNED)
CASES = {
    "thin": (THIN, "slots"),
    "wide": (planned((62, 701), *TURNED), "windows"),
    "aligned": (planned((64, 512), *TURNED), "direct"),
    "detour": (planned((1024, 1024), *SWAPPED, EIGHT, "v6e:4x2"), "relayed"),
    "no detour": (
        planned((2, 7), '[{"x":(1)2}, {"y"}]', '[{"x"}, {"y"}]', FLAT, "v6e:2x4"),
        "slots",
    ),
    "forwarded": (planned((40, 48), *TURNED, ROW, "v5e:2x2"), "routed"),
}


def by_form(made: DirectPlan) -> dict[str, FormChoice]:
    """The fastest choice of each form."""
    every = made.once(choices)
    names = {choice.form.name for choice in every}
    return {name: fastest(each for each in every if each.form.name == name) for name in names}


@pytest.mark.parametrize("name", CASES)
def test_the_form(name: str) -> None:
    made, form = CASES[name]
    taken = choice_of(made)
    assert taken.form.name == form
    assert taken == by_form(made)[form]
    least = fastest(made.once(choices)).seconds
    for other, choice in by_form(made).items():
        if choice.seconds <= (1 + MARGIN) * least:
            assert taken.form.facts.rank <= choice.form.facts.rank, other


def test_a_detour_within_the_margin_loses() -> None:
    made, form = CASES["no detour"]
    best = fastest(made.once(choices))
    assert best.straight is not None
    assert best.seconds < choice_of(made).seconds == best.straight
    assert choice_of(made).form.name == form


def test_a_form_within_the_margin_with_fewer_lines_wins() -> None:
    windows, slots = (by_form(THIN)[name] for name in ("windows", "slots"))
    assert windows.seconds < slots.seconds < (1 + MARGIN) * windows.seconds
    for times, form in ((1.0, "slots"), (1.09, "slots"), (1.11, "windows"), (0.5, "slots")):
        every = windows, replace(slots, seconds=times * windows.seconds)
        assert preferred(every).form.name == form
        assert preferred(every[::-1]).form.name == form


def test_of_one_form_the_fastest_wins() -> None:
    windows = by_form(THIN)["windows"]
    slower = replace(windows, seconds=1.01 * windows.seconds)
    assert preferred((slower, windows)) is windows
    more = replace(windows, figures=replace(windows.figures, wire_bytes=1 << 30))
    assert preferred((more, windows)) is windows


def test_a_detour_must_win_by_more_than_the_margin() -> None:
    """Over the fastest form without one, whose seconds it states."""
    made = planned((4096, 4096), *SWAPPED, EIGHT, "v6e:4x2")
    every = made.once(choices)
    straight = fastest(each for each in every if each.straight is None)
    detours = [each for each in every if each.straight is not None]
    assert {each.straight for each in detours} == {straight.seconds}
    best = fastest(detours)
    for times, form in ((0.92, straight.form.name), (0.9, best.form.name)):
        quick = replace(best, seconds=times * straight.seconds)
        assert preferred((straight, quick)).form.name == form


def test_with_another_module_its_kind_wins() -> None:
    """However many lines it has: both modules of a bundle are read together."""
    windows = by_form(THIN)["windows"].form
    assert choice_of(THIN).form.name == "slots"
    assert checked(THIN, windows).form.kind == windows.kind


@pytest.mark.parametrize("topology", ["v5e:2x2", "v5p:2x2x1"])
def test_the_seconds_are_those_of_the_form(topology: str) -> None:
    made = planned((40, 48), *TURNED, ROW, topology)
    backend = registry.backend("pallas_tpu")
    cost = cost_of(backend.timeline(made), network_of(made.reshard, topology))
    assert cost.seconds == pytest.approx(choice_of(made).seconds)


def test_the_page_says_why_a_form_is_not_the_fastest() -> None:
    pages = {
        name: sw.emit(CASES[name][0], ("pallas_tpu",)).files("b")["README.md"]
        for name in ("thin", "wide")
    }
    assert f"\n\n{SLOWER}\n\n" in pages["thin"]
    slots, windows = (by_form(THIN)[name].seconds for name in ("slots", "windows"))
    first, second = (line for line in pages["thin"].splitlines() if "| 0, 1 |" in line)
    assert first.startswith("| slots (chosen) |")
    assert first.endswith(f"| {slots / windows:.2f} |")
    assert second.startswith("| windows |")
    assert second.endswith("| 1.00 |")
    assert SLOWER not in pages["wide"]


SUPPORT = support_files(("pallas_tpu",))


def read(text: str) -> int:
    """The lines of code of a module and of all support that it imports, directly or not."""
    seen, left = {"": text}, [text]
    while left:
        for node in ast.walk(ast.parse(left.pop())):
            name = f"{node.module}.py".rpartition("_support.")[2] if is_near(node) else ""
            if name in SUPPORT and name not in seen:
                seen[name] = SUPPORT[name]
                left.append(SUPPORT[name])
    return sum(map(code_lines, seen.values()))


def is_near(node: ast.AST) -> bool:
    return isinstance(node, ast.ImportFrom) and node.level > 0


@pytest.mark.parametrize(
    ("shape", "target", "topology"),
    [
        ((64, 512), '[{}, {"x"}]', None),  # every form
        ((20, 50), '[{}, {"x"}]', None),  # tiles of several shapes
        ((64, 512), '[{}, {"x"}]', "v5e:2x2"),  # devices forward, in slots or without
        ((64, 128), "[{}, {}]", "v5e:2x2"),  # and whole shards
    ],
)
def test_ranks_follow_the_lines_of_modules(
    shape: tuple[int, ...], target: str, topology: str | None
) -> None:
    made = planned(shape, '[{"x"}, {}]', target, ROW, topology)
    ranked = sorted(by_form(made).values(), key=lambda choice: choice.form.facts.rank)
    lines = [read(pallas_tpu.printed(Request(made, "emit"), choice)) for choice in ranked]
    assert len(lines) > 1
    assert lines == sorted(lines), [choice.form.name for choice in ranked]


SMALL = (
    *("all_to_all_3", "cut_pattern_2x3", "gather_2x3", "move_major_2x2x2", "reduce_scatter_2x4"),
    *("reversed_devices", "sub_axes_after_reshape", "swap_axes_2x3", "torch_nested_2x2"),
    *("transpose_2x3", "transpose_3x4_uneven", "transpose_5x2_uneven"),
)
"""The bundles whose modules have slots within the margin of windows."""


@cache
def listed() -> dict[str, sw.Reshard]:
    every = (load_toml(ROOT / "corpus" / f"{name}.toml") for name in ("examples", "reshards"))
    return {each.name: each.reshard() for found in every for each in found if each.name in SMALL}


def run_in_windows(name: str, reshard: sw.Reshard, folder: Path) -> None:
    made = direct_of(sw.plan(reshard, "direct"))
    path = folder / "case.py"
    path.write_text(alone_in_form(made, by_form(made)["windows"]))
    (report,) = reports_of("pallas_tpu", [Case.of(reshard, name, "pallas_tpu", path)])
    assert report.verdict == "ok", report.detail


@pytest.mark.parametrize("name", sampled(SMALL, "gather_2x3", "torch_nested_2x2"))
def test_small_tiles_in_windows(name: str, tmp_path: Path) -> None:
    assert choice_of(direct_of(sw.plan(listed()[name], "direct"))).form.name == "slots"
    run_in_windows(name, listed()[name], tmp_path)


@pytest.mark.parametrize("seed", swept(range(2000, 2200), 20))
def test_random_in_windows(seed: int, tmp_path: Path) -> None:
    run_in_windows(str(seed), random_reshard(seed), tmp_path)
