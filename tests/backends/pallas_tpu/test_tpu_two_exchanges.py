"""Terms that TPU modules reduce in two exchanges: to parts of target shards, then to replicas."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from gpu_cases import make
from running import check, ran, runner
from style import FORMATTED, LINTED
from sums import QUICK, SHARED, SHARED_ON_TPU, in_two, shared
from sweeps import swept

import shardwright as sw
from shardwright.codegen.checks.case import Case
from shardwright.codegen.moves import plan
from shardwright.codegen.operations.bundles.verify import verify
from shardwright.codegen.operations.emit.modules import parts
from shardwright.ir.plan import Plan

BACKENDS = ("pallas_tpu",)
SEEDS = [seed for seed in range(160) if shared(seed)]


def text_of(made: Plan) -> str:
    return parts(made, "pallas_tpu", "shardwright emit", single_file=True)[0].text


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("unaligned", marks=pytest.mark.slow),
        *(
            pytest.param(name, marks=pytest.mark.exhaustive)
            for name in SHARED_ON_TPU
            if name != "unaligned"
        ),
    ],
)
def test_replicas_share_in_reducing(name: str, tmp_path: Path) -> None:
    """In two exchanges, of which bytes are less than twice the least."""
    made = in_two(SHARED_ON_TPU[name])
    (report,) = ran("pallas_tpu", [made], tmp_path)
    assert (report.verdict, report.detail) == ("ok", "")
    assert {"races", "semaphores", "transfers", "protocol"} <= set(report.checks)
    traffic = made.traffic
    assert traffic.bound_received_total <= traffic.received_total
    assert traffic.received_total < 2 * traffic.bound_received_total


@pytest.mark.parametrize("seed", swept(SEEDS, 40))
def test_random(seed: int, tmp_path: Path) -> None:
    made = shared(seed)
    assert made is not None
    check("pallas_tpu", [made], tmp_path)


def test_all_forms_are_met() -> None:
    said = {
        form
        for each in SHARED_ON_TPU.values()
        for form in re.findall(r"Form: (\w+);", parts(in_two(each), "pallas_tpu", "c")[0].text)
    }
    assert said == {"direct", "windows", "slots"}


def test_one_plan_for_all_backends() -> None:
    """In two exchanges where that is cheaper; in one where the TPU's devices change their order
    between both."""
    reshard = make({"x": 8}, (2**20,), '[{}], unreduced={"x"}', "[{}]")
    plans = [sw.plan(reshard, backends=names) for names in (BACKENDS, ("triton_gpu",))]
    assert plans == [sw.plan(reshard)] * 2
    assert plans[0].ops == "reduce_scatter, all_gather"
    assert sw.plan(SHARED["elsewhere"], topology=QUICK).ops == "exchange"


def test_bytes_are_the_least_where_every_device_has_a_term() -> None:
    traffic = in_two(SHARED_ON_TPU["aligned"]).traffic
    assert traffic.received_total <= 2 * traffic.bound_received_total
    all_reduce = make({"x": 8}, (16, 128), '[{}, {}], unreduced={"x"}', "[{}, {}]")
    traffic = in_two(all_reduce).traffic
    assert traffic.received_total == traffic.bound_received_total


@pytest.mark.slow
def test_a_large_sum_is_verified_on_a_twin(tmp_path: Path) -> None:
    """Of two exchanges too, with its derivative."""
    reshard = make({"x": 4}, (2**12, 512), '[{}, {}], unreduced={"x"}', "[{}, {}]")
    bundle = sw.emit(reshard, backends=BACKENDS, gradient=True)
    assert bundle.plan.ops == "reduce_scatter, all_gather"
    bundle.write(tmp_path / "large")
    (report,) = verify(tmp_path)
    assert report.verdict == "ok", report.detail
    assert "twin" in report.detail
    assert "of another form" not in report.detail
    assert {"derivative", "backward", "protocol"} <= set(report.checks)


def test_modules_are_formatted(tmp_path: Path) -> None:
    for name, reshard in SHARED_ON_TPU.items():
        text = parts(in_two(reshard), "pallas_tpu", "shardwright emit")[0].text
        (tmp_path / f"{name}.py").write_text(text)
    for words in (FORMATTED, LINTED):
        command = [sys.executable, "-m", *words, str(tmp_path)]
        run = subprocess.run(command, capture_output=True, text=True)
        assert run.returncode == 0, run.stdout[-3000:]


FAULTS = {
    "of_one_id": (
        "aligned",
        r"COLLECTIVE_ID \+ 2",
        "COLLECTIVE_ID",
        r"kernels of one program share a collective id: \[0, 0\]",
    ),
    "parts_lost": (
        "aligned",
        r"return self.then.exchange\(part, ",
        "return self.then.exchange(part * 0, ",
        "device 0: .*wrong; element.*",
    ),
    "parts_of_others": (
        "unaligned",
        r"def part_box\(position\):\n(    .*\n)",
        r"def part_box(position):\n\1    position = (position + 1) % 8\n",
        "(?s).*(pieces|expected|wrong; element).*",
    ),
    "a_part_left_out": (
        "unaligned",
        r"def part_receiver\(sender, number\):\n(    .*\n)",
        r"def part_receiver(sender, number):\n\1    return sender\n",
        r"Semaphore \d+ has non-zero count .*",
    ),
}
"""By name: which sum, words of its module, what stands there instead, and what is said."""


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults(name: str, tmp_path: Path) -> None:
    which, words, instead, expected = FAULTS[name]
    wrong, count = re.subn(words, instead, text_of(in_two(SHARED_ON_TPU[which])))
    assert count, "nothing is planted"
    path = tmp_path / "case.py"
    path.write_text(wrong)
    report = runner("pallas_tpu").run(Case.of(SHARED_ON_TPU[which], name, "pallas_tpu", path))
    assert report.verdict == "failed"
    assert re.fullmatch(expected, report.detail), report.detail


@pytest.mark.slow
def test_where_a_v5e_does_not_send_directly(tmp_path: Path) -> None:
    made = plan(make({"x": 8}, (64, 2048), '[{}, {}], unreduced={"x"}', "[{}, {}]"), "direct")
    made = plan(made.reshard, "direct", topology="v5e:2x4,latency=1e-12")
    assert made.ops == "reduce_scatter, all_gather"
    assert re.search(r"_COPIES = (Routed|Relayed|Gathered|Spread)\(", text_of(made))
    check("pallas_tpu", [made], tmp_path)
