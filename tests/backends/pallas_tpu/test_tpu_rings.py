"""Terms that TPU modules reduce on their way round rings."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from contexts import Given
from gpu_cases import make
from lone import alone
from places import ROOT
from running import ran, runner
from style import FORMATTED, LINTED
from sweeps import sampled

import shardwright as sw
from shardwright.codegen.backends.pallas_tpu import ring_text
from shardwright.codegen.backends.pallas_tpu.timeline import ring_of, timeline
from shardwright.codegen.checks.case import Case
from shardwright.codegen.checks.compiled.job import Job, What
from shardwright.codegen.moves import plan
from shardwright.codegen.operations.bundles.compile import compile_bundles
from shardwright.codegen.operations.bundles.verify import verify
from shardwright.codegen.operations.compile import targets
from shardwright.codegen.operations.compile.pool import outcomes
from shardwright.codegen.operations.emit.modules import parts
from shardwright.codegen.text.templates import render
from shardwright.ir import InputError, Reshard
from shardwright.ir.plan import Plan, direct_of

SLOW_LINKS = "torus:8,wrap=1,bandwidth=1e6,latency=1e-12"
"""A ring of devices on which bytes alone count."""

CHAIN = "torus:2x4,wrap=0x0,bandwidth=1e6,latency=1e-12"

LINE = {"x": 8}
FOUR = "torus:4,wrap=1,bandwidth=1e6,latency=1e-12"
SHARED = {
    "few": (make({"x": 4}, (64, 128), '[{}, {}], unreduced={"x"}', '[{"x"}, {}]'), FOUR),
    "sum": (make(LINE, (128, 128), '[{}, {}], unreduced={"x"}', '[{"x"}, {}]'), SLOW_LINKS),
    "narrow": (
        make(LINE, (128, 128), '[{}, {}], unreduced={"x"}', '[{}, {"x"}]', dtype="bfloat16"),
        SLOW_LINKS,
    ),
    "largest": (
        make(LINE, (16384,), '[{}], unreduced=max{"x"}', '[{"x"}]', dtype="int16"),
        SLOW_LINKS,
    ),
    "two_axes": (
        make({"x": 4, "y": 2}, (128, 128), '[{}, {}], unreduced={"x", "y"}', '[{"x"}, {"y"}]'),
        CHAIN,
    ),
    "all_reduce": (make(LINE, (128, 128), '[{}, {}], unreduced={"x"}', "[{}, {}]"), SLOW_LINKS),
    "narrow_all_reduce": (
        make(LINE, (128, 128), '[{}, {}], unreduced={"x"}', "[{}, {}]", dtype="float16"),
        SLOW_LINKS,
    ),
    "kept": (
        make(
            {"x": 4, "y": 2},
            (128, 128),
            '[{}, {}], unreduced={"x", "y"}',
            '[{"x"}, {}], unreduced={"y"}',
            dtype="int32",
        ),
        CHAIN,
    ),
}


def skip_without_the_compiler() -> None:
    try:
        targets.require(targets.parse_targets(["v5e:2x4"]), saving=False)
    except InputError as error:
        pytest.skip(" ".join(str(error).split()))


def ringed(reshard: Reshard, topology: str) -> Plan:
    made = plan(reshard, "direct", topology=topology)
    assert re.search(r" = Ring\(", text_of(made))
    return made


def text_of(made: Plan) -> str:
    return parts(made, "pallas_tpu", "shardwright emit", single_file=True)[0].text


@pytest.mark.parametrize(
    "name",
    [
        "few",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("two_axes", "kept", "narrow_all_reduce")
        ),
        *(
            pytest.param(name, marks=pytest.mark.exhaustive)
            for name in ("sum", "narrow", "largest", "all_reduce")
        ),
    ],
)
def test_rings(name: str, tmp_path: Path) -> None:
    (report,) = ran("pallas_tpu", [ringed(*SHARED[name])], tmp_path)
    assert (report.verdict, report.detail) == ("ok", "")
    assert {"races", "semaphores", "protocol"} <= set(report.checks)
    assert ("sums in order" in report.checks) == (
        name in ("few", "sum", "narrow", "two_axes", "all_reduce", "narrow_all_reduce")
    )


COMPILED = ("sum", "largest", "two_axes", "all_reduce")


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", COMPILED)
def test_they_compile_in_both_widths(name: str, tmp_path: Path) -> None:
    skip_without_the_compiler()
    path, widths = tmp_path / f"{name}.py", list[What](["module", "x64"])
    path.write_text(alone(ringed(*SHARED[name]), "pallas_tpu"))
    jobs = [Job(what, "pallas_tpu", "pallas_tpu", str(path), "v5e:2x4") for what in widths]
    assert [outcome.error for outcome in outcomes(jobs, 120)] == ["", ""]


@pytest.mark.exhaustive
def test_a_large_sum_for_a_v5e(tmp_path: Path) -> None:
    """Which rings suit: each hop is one that it sends directly. It is compiled for it, and verified
    on a twin of the same form."""
    reshard = make({"x": 4, "y": 2}, (2048, 2048), '[{}, {}], unreduced={"x", "y"}', "[{}, {}]")
    bundle = sw.emit(reshard, backends=("pallas_tpu",), topology="v5e:2x4")
    assert bundle.plan.ops == "reduce_scatter, all_gather"
    bundle.write(tmp_path / "large")
    text = (tmp_path / "large/pallas_tpu.py").read_text()
    assert re.search(r"RING0 = Round\(2, 4, folded=True\)\n.*\nRING1 = Round\(1, 2\)", text)
    (report,) = verify(tmp_path)
    assert report.verdict == "ok", report.detail
    assert "twin" in report.detail
    assert "of another form" not in report.detail
    skip_without_the_compiler()
    (outcome,) = compile_bundles([tmp_path], ["v5e:2x4"])
    assert (outcome.verdict, outcome.detail) == ("ok", "")


def test_modules_are_formatted(tmp_path: Path) -> None:
    for name, given in SHARED.items():
        text = parts(ringed(*given), "pallas_tpu", "shardwright emit")[0].text
        (tmp_path / f"{name}.py").write_text(text)
    for words in (FORMATTED, LINTED):
        command = [sys.executable, "-m", *words, str(tmp_path)]
        run = subprocess.run(command, capture_output=True, text=True)
        assert run.returncode == 0, run.stdout[-3000:]


def test_rings_are_taken_where_links_bound() -> None:
    """Of a large tensor on a torus; not of few bytes, or on a switch."""
    mesh, sides = {"x": 4, "y": 2}, ('[{}, {}], unreduced={"x", "y"}', '[{"x"}, {"y"}]')
    for shape, topology, is_ring in (
        ((4096, 4096), "v5e:2x4", True),
        ((64, 512), "v5p:2x2x2", False),
        ((4096, 4096), "switch:8", False),
    ):
        made = plan(make(mesh, shape, *sides), "direct", topology=topology, in_two=False)
        assert (ring_of(direct_of(made)) is not None) == is_ring


def test_wire_bytes_are_those_of_the_timeline(tmp_path: Path) -> None:
    for reshard, topology in SHARED.values():
        made = ringed(reshard, topology)
        stated = re.search(r"^WIRE_BYTES = (\d+)  # ", text_of(made), re.M)
        assert stated
        assert timeline(made).wire_bytes == int(stated[1])


WRONG = "device 0: .*wrong; element.*"
REUSED = "(?s).*(race: |writes 'slots' of rank .* while rank).*"
ADD = r'( +put\(total, "sum", partial, own\)\n)'
FREE = r"( +pl.when\(sent < \d+\)\(lambda: allow\(way, 1\)\)\n)"
FAULTS: dict[str, tuple[dict[str, str], str]] = {
    "left_out": ({r"partial, own\)": "partial)"}, WRONG),
    "twice": ({r"partial, own\)": "partial, own, own)"}, WRONG),
    "another_part": ({r"(\d+) - at if": r"\1 - 1 - at if"}, WRONG),
    "step_skipped": ({r"each\((\d+), advance_both\)": r"each(\1 - 1, advance_both)"}, WRONG),
    "freed_too_soon": ({ADD + FREE: r"\2\1"}, REUSED),
    "three_slots_of_two": (
        {r"allow\(way, 2\)": "allow(way, 3)", r"sent < (\d+)\)": r"sent < \1 - 1)"},
        REUSED,
    ),
    "nobody_meets": (
        {r"    pl.semaphore_wait\(barrier, 2\)  # 1 from each neighbour\n": ""},
        "Semaphore .* has non-zero count .*",
    ),
    "sums_written_over": (
        {r" +pl.when\(step >= 2\).*  # the sum of two steps earlier\n": ""},
        "Semaphore .* has non-zero count .*",
    ),
    # Of numbers of 16 bits.
    "rounded_each_time": ({"wide = jnp.float32 if": "wide = dtype if"}, "sums in the order .*"),
}
"""By name: patterns of a module with what stands there instead, and what is said."""
KEPT = ("freed_too_soon", "nobody_meets")


@pytest.mark.parametrize("name", sampled(FAULTS, *KEPT))
def test_planted_faults(name: str, tmp_path: Path) -> None:
    edits, expected = FAULTS[name]
    which = SHARED["narrow" if name == "rounded_each_time" else "few"]
    text = text_of(ringed(*which))
    for pattern, instead in edits.items():
        text, count = re.subn(pattern, instead, text)
        assert count == 1, "nothing is planted"
    path = tmp_path / "case.py"
    path.write_text(text)
    report = runner("pallas_tpu").run(Case.of(which[0], name, "pallas_tpu", path))
    assert report.verdict == "failed"
    assert re.fullmatch(expected, report.detail), report.detail


@pytest.mark.parametrize("name", ["twice", "another_part", "three_slots_of_two"])
def test_events_at_full_size_tell(name: str, tmp_path: Path) -> None:
    """Without anything moved."""
    edits, _ = FAULTS[name]
    text = text_of(ringed(*SHARED["sum"]))
    for pattern, instead in edits.items():
        text, count = re.subn(pattern, instead, text)
        assert count == 1, "nothing is planted"
    path = tmp_path / "case.py"
    path.write_text(text)
    case = Case.of(SHARED["sum"][0], name, "pallas_tpu", path)
    report = runner("pallas_tpu").run(replace(case, execute=False))
    assert report.verdict == "failed"
    said = "has the terms of ranks|has terms of a different part|writes 'slots' of rank"
    assert re.search(said, report.detail), report.detail


GIVEN = Given({"axis", "order", "chunk_bytes", "vmem_bytes"}, {"Round", "div"})


def test_the_template_is_given_expressions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every copy, wait and signal of the kernel is its own text; of what it is given, all that it
    prints is looked at."""
    contexts: list[ring_text.RingKernel] = []

    def kept(template: str, context: ring_text.RingKernel) -> str:
        contexts.append(context)
        return render(template, context)

    monkeypatch.setattr(ring_text, "render", kept)
    for given in SHARED.values():
        text_of(ringed(*given))
    template = (ROOT / "templates" / "pallas_tpu" / "ring.py.jinja").read_text()
    assert len(contexts) >= len(SHARED)
    for context in contexts:
        for letter, each in (("m", context), *(("r", ring) for ring in context.rings)):
            names = {*re.findall(rf"\b{letter}\.(\w+)", template)} - {"rings"}
            values = {name: getattr(each, name) for name in names}
            assert GIVEN.strange(values) == []
    planted = {"read": "pl.semaphore_wait(barrier, 1)", "size": 4, "write": "x\n    y.wait()"}
    assert GIVEN.strange(planted) == ["read", "write"]
