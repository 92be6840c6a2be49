"""Sums, maxima and minima of terms by the Triton modules: in the interpreter and over gloo."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from cases import kept_reshard, summed_pairs
from every_feature import EVERY
from gpu_cases import make
from running import ran, runner
from strategies import exactly, message
from style import FORMATTED, LINTED
from sums import QUICK, SHARED, elsewhere, in_two, of_any_kind, placed
from sweeps import sampled
from test_distributed import check_exchange

import shardwright as sw
from shardwright.codegen.checks.case import Case
from shardwright.codegen.checks.load import load
from shardwright.codegen.moves import plan
from shardwright.codegen.operations.bundles.verify import verify
from shardwright.codegen.operations.emit.modules import parts
from shardwright.ir import Mesh, Reshard
from shardwright.ir.plan import Plan

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

CUBE = {"x": 2, "y": 2, "z": 2}


def check(reshards: list[Reshard], folder: Path) -> None:
    """All are right in the interpreter."""
    failed = [
        r for r in ran("triton_gpu", list(map(direct, reshards)), folder) if r.verdict != "ok"
    ]
    assert not failed, "\n".join(f"{report.name}\n    {report.detail}" for report in failed)


def direct(reshard: Reshard) -> Plan:
    return plan(reshard, "direct")


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(200))
def test_random(seed: int, tmp_path: Path) -> None:
    """Any axes and sub-axes unreduced, kept or not, extents that divide or not, scalars."""
    check([of_any_kind(seed)], tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(60))
def test_to_other_meshes(seed: int, tmp_path: Path) -> None:
    check([elsewhere(seed)], tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(60))
def test_terms_that_stay(seed: int, tmp_path: Path) -> None:
    check([kept_reshard(seed)], tmp_path)


PAIRS = summed_pairs(CUBE, (8, 4))


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", range(len(PAIRS)))
def test_pairs_of_the_cube(number: int, tmp_path: Path) -> None:
    """Every sharding of a matrix that leaves an axis unreduced, to every one."""
    check([PAIRS[number]], tmp_path)


SCATTERED = make(
    {"x": 2, "y": 4}, (8, 12), '[{"x"}, {}], unreduced={"y"}', '[{"x"}, {"y"}]', dtype="bfloat16"
)
REPLICATED = make({"x": 2, "y": 4}, (6, 5), '[{"x"}, {}], unreduced={"y"}', "[{}, {}]")
MANY = make({"x": 12}, (5,), '[{}], unreduced=max{"x"}', "[{}]", dtype="float16")
PIECES = make(
    {"x": 2, "y": 2, "z": 2}, (32, 8), '[{}, {}], unreduced={"x"}', '[{"y"}, {"x"}]', dtype="int8"
)


@pytest.mark.parametrize("name", sampled(SHARED, "sub_axes"))
def test_replicas_share_in_reducing(name: str, tmp_path: Path) -> None:
    """In two exchanges, of which bytes are less than twice the least."""
    made = in_two(SHARED[name])
    (report,) = ran("triton_gpu", [made], tmp_path)
    assert (report.verdict, report.detail) == ("ok", "")
    traffic = made.traffic
    assert traffic.bound_received_total <= traffic.received_total
    assert traffic.received_total < 2 * traffic.bound_received_total


def test_replicas_share_over_gloo(tmp_path: Path) -> None:
    check_exchange([SHARED["kept"], SHARED["elsewhere"]], tmp_path, topology=QUICK)


def test_what_is_large_is_shared() -> None:
    """An all-reduce on a switch: in one exchange up to some hundred kilobytes, then in two, which
    move the least."""
    for count, ops in ((2**14, "exchange"), (2**20, "reduce_scatter, all_gather")):
        reshard = make({"x": 8}, (count,), '[{}], unreduced={"x"}', "[{}]")
        made = sw.plan(reshard, backends=("triton_gpu",))
        assert made.ops == ops
        ratio = made.traffic.received_total / made.traffic.bound_received_total
        assert ratio == (4 if ops == "exchange" else 1)


def test_two_exchanges_cost_two_waits_more() -> None:
    """Of so few bytes that two exchanges have a message less, not two."""
    mesh = Mesh({"x": 2, "y": 2})
    sides = mesh.sharding('[{"x"}, {}], unreduced={"y"}'), mesh.sharding('[{}, {"y"}]')
    reshard = Reshard((4, 6), "float32", *sides)
    assert sw.plan(reshard, backends=("triton_gpu",)).ops == "exchange"


@pytest.mark.slow
def test_a_large_sum_is_verified_on_a_twin_in_two_exchanges(tmp_path: Path) -> None:
    reshard = make({"x": 4}, (2**11, 512), '[{}, {}], unreduced={"x"}', "[{}, {}]")
    sw.emit(reshard, backends=("triton_gpu",), features=EVERY).write(tmp_path / "large")
    (report,) = verify(tmp_path)
    assert report.verdict == "ok", report.detail
    assert "twin" in report.detail
    assert "of another form" not in report.detail


def test_a_reduce_scatter_moves_the_least() -> None:
    """Of a reduce-scatter every term moves once; of an all-reduce, to every replica."""
    traffic = direct(SCATTERED).traffic
    assert traffic.received_total == traffic.bound_received_total == 6 * 8 * 12
    assert traffic.received_max == traffic.bound_received_max
    assert traffic.sent_max == traffic.bound_sent_max


@pytest.mark.slow
def test_bundles(tmp_path: Path) -> None:
    """They are verified with gradients, and are formatted."""
    for number, reshard in enumerate((SCATTERED, REPLICATED)):
        sw.emit(reshard, backends=("triton_gpu",), gradient=True, features=EVERY).write(
            tmp_path / f"sum{number}"
        )
    for report in verify(tmp_path):
        assert (report.verdict, report.detail) == ("ok", "")
        assert {"sums within bounds", "derivative", "backward", "copies"} <= set(report.checks)


def test_modules_are_formatted(tmp_path: Path) -> None:
    plans = [*map(direct, (SCATTERED, REPLICATED, MANY, PIECES)), *map(in_two, SHARED.values())]
    for number, made in enumerate(plans):
        text = parts(made, "triton_gpu", "shardwright emit")[0].text
        (tmp_path / f"case{number}.py").write_text(text)
    for words in (FORMATTED, LINTED):
        command = [sys.executable, "-m", *words, str(tmp_path)]
        run = subprocess.run(command, capture_output=True, text=True)
        assert run.returncode == 0, run.stdout[-3000:]


def test_the_backward_of_a_reduce_scatter_is_an_all_gather() -> None:
    """And that of an all-gather, of which every replica has a cotangent of its own, the reverse."""
    own, back = parts(direct(SCATTERED), "triton_gpu", "c", gradient=True)
    assert "_HOST = Reduction(" in own.text
    assert "_HOST = Reshard(" in back.text
    mesh = Mesh({"x": 2, "y": 4})
    gather = sw.all_gather((8, 12), "bfloat16", mesh.sharding('[{"x"}, {"y"}]'), "y")
    assert back.plan.traffic == plan(gather).traffic
    terms = mesh.sharding('[{"x"}, {}], unreduced={"y"}')
    assert sw.reduce_scatter((8, 12), "bfloat16", terms, "y", dim=1) == SCATTERED


FAULTS = {
    "left_out": (
        SCATTERED,
        r"static_range\(4\)",
        "static_range(3)",
        "device 0: .*wrong; element.*",
    ),
    "twice": (
        SCATTERED,
        r"( +)(total \+= .*)\n",
        r"\1\2\n\1\2\n",
        "device 0: .*wrong; element.*",
    ),
    "another_order_on_one_replica": (
        REPLICATED,
        r"for term in tl.static_range\(4\):\n",
        "for turn in tl.static_range(4):\n            term = (turn + receiver) % 4\n",
        "devices 0 and 1 have different sums",
    ),
    "another_order_on_all": (
        SCATTERED,
        r"for term in tl.static_range\(4\):\n",
        "for turn in tl.static_range(4):\n            term = (turn + 1) % 4\n",
        r"device 0: the kernel reduces terms \[1, 2, 3, 0\], expected each once, in order",
    ),
    "nobody_sends": (
        SCATTERED,
        r"for term in range\(4\)\]",
        "for term in range(3)]",
        "only the senders list .*",
    ),
    "terms_of_others": (
        SCATTERED,
        r"term_lo0 = position % 4",
        "term_lo0 = position // 2",
        "source_box, terms of device 0: .*",
    ),
}
"""By name: the reshard, words of its module, what stands there instead, and what is said."""


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults(name: str, tmp_path: Path) -> None:
    reshard, words, instead, expected = FAULTS[name]
    text = parts(direct(reshard), "triton_gpu", "shardwright emit", single_file=True)[0].text
    wrong, count = re.subn(words, instead, text)
    assert count, "nothing is planted"
    path = tmp_path / "case.py"
    path.write_text(wrong)
    report = runner("triton_gpu").run(Case.of(reshard, name, "triton_gpu", path))
    assert report.verdict == "failed"
    assert re.fullmatch(expected, report.detail), report.detail


WIDE = make(
    {"x": 2, "y": 4},
    (512, 2048),
    '[{"x"}, {}], unreduced={"y"}',
    '[{"x"}, {"y"}]',
    dtype="bfloat16",
)


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "gfx942"])
def test_compiled(target: str, tmp_path: Path) -> None:
    """Few and many terms, of holders that take turns, in one exchange and in two; aligned shards by
    loads and stores of 16 bytes, without spills, and no division in a loop."""
    from shardwright.codegen.backends.triton_gpu.compile.run import code_of, compiled

    plans = [*map(direct, (WIDE, MANY, PIECES)), in_two(SHARED["elsewhere"])]
    for number, made in enumerate(plans):
        path = tmp_path / f"case{number}.py"
        path.write_text(parts(made, "triton_gpu", "c", single_file=True)[0].text)
        module = load(path)
        for phase in range(len(module._HOST.phases)):
            code = code_of(compiled(module, target, phase), 0.0)
            assert code.looped_divisions == 0
            assert not code.stack_bytes
            if made.reshard is WIDE:
                assert code.stores == code.wide_stores > 0
                assert code.wide_loads >= 4


def test_over_gloo(tmp_path: Path) -> None:
    """Packed, exchanged and added by torch, in the same order; bytes as planned."""
    seeds = [of_any_kind(seed) for seed in range(3)]
    check_exchange([SCATTERED, REPLICATED, PIECES, *seeds], tmp_path)


@pytest.mark.slow
def test_new_terms_over_gloo(tmp_path: Path) -> None:
    """Nobody sends anything to terms without a value, which are filled all the same."""
    check_exchange(placed(range(24)), tmp_path)


def test_what_is_refused() -> None:
    assert message(lambda: sw.emit(SCATTERED, ("triton_gpu",), "basis")) == exactly(
        """
        strategy: every backend must support the strategy
        got: basis for triton_gpu
        expected: one of auto, direct, or backends jax_xla
        """
    )
    assert message(lambda: sw.emit(SCATTERED, ("triton_gpu", "jax_xla"))) == exactly(
        """
        backends: all backends of a bundle must reduce partial sums in the same way
        got: triton_gpu (direct), jax_xla (basis)
        expected: a separate bundle for each backend
        """
    )
    for made in (direct(SCATTERED), in_two(SHARED["uneven"])):
        assert message(lambda made=made: sw.emit(made, ("jax_xla",))) == exactly(
            """
            strategy: jax_xla can reduce partial sums only by collectives, not in a direct exchange
            got: direct
            expected: basis
            """
        )
