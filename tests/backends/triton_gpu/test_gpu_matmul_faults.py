"""Faults planted in Triton matmuls, and what finds each: in one process what comes after what is
known from the order of releases and acquires, so that nothing hangs on luck."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import running
from gloo_group import multiplied, verified
from matmuls import write_module
from sweeps import sampled

import shardwright as sw
from shardwright.codegen.checks.matmul_case import MatmulCase
from shardwright.codegen.moves.matmul.plan import plan_matmul
from shardwright.codegen.operations.verify.pool import Runner

pytest.importorskip("torch")

PAIR = sw.Mesh({"x": 2})
CASE_4 = '[{"x"}, {}]', '[{}, {"x"}]', '[{}, {"x"}]'
CASE_3 = '[{}, {"x"}]', '[{"x"}, {}]', '[{"x"}, {}]'
KINDS = {
    "gather": ((16, 12, 24), CASE_4),
    "along j": ((16, 12, 24), ('[{}, {"x"}]', '[{}, {"x"}]', '[{}, {"x"}]')),
    "scatter": ((16, 12, 10), CASE_3),
    # Of one row: device 0 is given nothing by device 1, or gives it nothing.
    "gather one row": ((1, 12, 24), CASE_4),
    "scatter one row": ((1, 12, 10), CASE_3),
    "both": ((4, 64, 64), ('[{"x"}, {}]', '[{"x"}, {}]', '[{"x"}, {}]')),
    "terms": ((16, 12, 24), ('[{}, {}], unreduced={"x"}', "[{}, {}]", '[{"x"}, {}]')),
}
"""Extents of i, j and k, and shardings."""

WAITS = "wait(come + part"
COUNTS = "        part = tl.load(row + 7)\n        if part >= 0:\n            count(come + part)\n"
STALE = "wait(flags + (epoch - 1 & 1) * 2 + holder, epoch - 1, state"
OFFERED = "wait(flags + (epoch & 1) * 2 + holder, epoch, state"
NO_WAIT = OFFERED.replace("wait(", "(").replace(", state", "), (state")
TOLD = "wait(told + name, tiles_told, state, polls, 5 + name)"
RELEASE = 'tl.atomic_add(flag, 1, sem="release", scope="sys")'
SIDE = "self._side.wait_stream(torch.cuda.current_stream(self.home))"
MAIN = "torch.cuda.current_stream(self.home).wait_stream(self._side)"
HOLDER = "source = tl.load(peers + holder)"
SLOT = "tl.cast(epoch & 1, tl.int64) *"
KERNELS, HOST = "m/triton_gpu.py", "_support/torch_member.py"

FAULTS: dict[str, tuple[str, str, tuple[tuple[str, str], ...], str]] = {
    # By the order: the load does not come after the store.
    "no wait for what comes": (
        "gather",
        KERNELS,
        ((WAITS, WAITS.replace("wait(", "(")),),
        "multiply of device 0 reads the operands of device 0 without waiting for what pull",
    ),
    "no wait for what leaves": (
        "scatter",
        KERNELS,
        ((TOLD, "pass"),),
        "add of device 0 reads the terms of device 0 without waiting for what multiply",
    ),
    "no wait for what is offered": (
        "gather",
        KERNELS,
        ((OFFERED, NO_WAIT),),
        "reads what is offered of device 1 without waiting for what offer of device 1 writes",
    ),
    "a flag before its data": (
        "gather",
        KERNELS,
        ((COUNTS, ""), (HOLDER, COUNTS.lstrip() + "        " + HOLDER)),
        "reads the operands of device 0 without waiting for what pull of device 0 writes",
    ),
    "no barrier of threads before a flag": (
        "scatter",
        KERNELS,
        (("tl.debug_barrier()\n    " + RELEASE, RELEASE),),
        "add of device 0 reads the terms of device 0 without waiting for what multiply",
    ),
    "a flag that releases nothing": (
        "scatter",
        KERNELS,
        ((RELEASE, RELEASE.replace("release", "relaxed")),),
        "reads the terms of device 0 without waiting for what multiply",
    ),
    "a flag for one GPU only": (
        "scatter",
        KERNELS,
        ((RELEASE, RELEASE.replace("sys", "gpu")),),
        "reads the terms of device 0 without waiting for what multiply",
    ),
    "a wait that acquires nothing": (
        "gather",
        KERNELS,
        (('flag, 0, sem="acquire"', 'flag, 0, sem="relaxed"'),),
        "without waiting for what",
    ),
    "no wait for another term": (
        "terms",
        KERNELS,
        (("        for term in range(terms):", "        for term in range(1):"),),
        "reads what is offered of device 1 without waiting for what offer of device 1 writes",
    ),
    "a stale epoch": (
        "gather",
        KERNELS,
        ((OFFERED, STALE),),
        "reads what is offered of device 1 without waiting for what offer of device 1 writes",
    ),
    "one slot for all calls": (
        "gather",
        KERNELS,
        ((SLOT, "0 *"),),
        "offer of device 0 overwrites what is offered of device 0 without waiting for what pull",
    ),
    "no barrier between calls": (
        "gather one row",
        KERNELS,
        (("wait(before + name, epoch - 1,", "(before + name, epoch - 1,"),),
        "overwrites what is offered of device 0 without waiting for what pull of device 1 reads",
    ),
    "no barrier between sums": (
        "scatter one row",
        KERNELS,
        (("wait(before + name, epoch - 1,", "(before + name, epoch - 1,"),),
        "overwrites the terms of device 0 without waiting for what add of device 0 reads there",
    ),
    "the second stream does not wait for the first": (
        "gather",
        HOST,
        ((SIDE, "pass"),),
        "reads the number of the call of device 0 without waiting for what announce",
    ),
    # By flags that nobody sets: a wait ends, and says of what.
    "a flag that is never set so": (
        "gather",
        KERNELS,
        ((OFFERED, OFFERED.replace("epoch, state", "epoch + 1, state")),),
        "call 1 timed out waiting for the operands of device 0",
    ),
    "one flag for all steps": (
        "gather",
        KERNELS,
        (("count(come + part)", "count(come)"), (WAITS, WAITS.replace(" + part", ""))),
        "timed out waiting for lhs [0, 8) x [0, 12) of device 0",
    ),
    "a step of pulling is skipped": (
        "gather",
        KERNELS,
        (("for job in range(number)", "for job in range(number - 1)"),),
        "timed out waiting for lhs [8, 16) x [0, 12) of device 1",
    ),
    "a sum of terms is skipped": (
        "terms",
        KERNELS,
        (("for _ in range(number):", "for _ in range(number - 1):"),),
        "timed out waiting for lhs [0, 8) x [0, 12) of devices 0, 1",
    ),
    "a count of terms that nobody reaches": (
        "both",
        KERNELS,
        ((TOLD, TOLD.replace("tiles_told", "tiles_told + 1")),),
        "timed out waiting for terms of device 0",
    ),
    # By values.
    "a step of multiplying is skipped": (
        "along j",
        KERNELS,
        (("for _ in range(segment_count)", "for _ in range(segment_count - 1)"),),
        "result at (0, 0): got",
    ),
    "a wrong part": (
        "gather",
        KERNELS,
        ((HOLDER, HOLDER.replace("holder", "1 - holder")),),
        "result at (0, 0): got",
    ),
    "a double addition": (
        "scatter",
        KERNELS,
        (("range(1, terms)", "range(0, terms)"),),
        "result at (0, 0): got",
    ),
    "a term is left out": (
        "scatter",
        KERNELS,
        (("range(1, terms)", "range(2, terms)"),),
        "result at (0, 0): got",
    ),
    "a term of an operand is left out": (
        "terms",
        KERNELS,
        (("            for term in range(1, terms)", "            for term in range(2, terms)"),),
        "result at (0, 0): got",
    ),
    "rows beyond the last are stored": (
        "scatter",
        KERNELS,
        (("inside = (row < rows) &", "inside = (row >= 0) &"),),
        "stores to memory",
    ),
}
"""In which matmul, in which file, what is written in place of what, what is then said."""


@pytest.fixture
def runner() -> Runner:
    return running.runner("triton_gpu")


def small(kind: str, root: Path) -> MatmulCase:
    (i, j, k), (lhs, rhs, out) = KINDS[kind]
    given = sw.Matmul("float32", ((i, j), lhs), ((j, k), rhs), out, mesh=PAIR)
    return write_module(plan_matmul(given, listed=0), "m", root, backend="triton_gpu")


def plant(right: str, wrong: str, file: Path) -> None:
    """Write one text in place of another."""
    text = file.read_text()
    assert right in text, right
    file.write_text(text.replace(right, wrong))


QUICKLY = (
    *("no wait for what comes", "no wait for what leaves", "a flag that releases nothing"),
    *("a wait that acquires nothing", "no barrier between calls", "no wait for another term"),
    *("a count of terms that nobody reaches", "one flag for all steps", "a wrong part"),
    "rows beyond the last are stored",
)
"""What each kind of matmul waits for, each way of a flag to fail, and each other check; the long
sweep plants all."""


@pytest.mark.parametrize("fault", sampled(FAULTS, *QUICKLY))
def test_planted_faults_are_found(fault: str, tmp_path: Path) -> None:
    kind, file, texts, said = FAULTS[fault]
    case = small(kind, tmp_path)
    for right, wrong in texts:
        plant(right, wrong, tmp_path / file)
    verdict, detail = verified(case, tmp_path)
    assert verdict == "failed", fault
    assert said in detail


def test_the_number_of_a_call_in_a_graph(tmp_path: Path) -> None:
    """A host that gives kernels the number of a call: right in every call, wrong where a graph
    makes launches again, all of call 3. By a flag that no call sets so."""
    case = small("gather", tmp_path)
    begins = '    partners,\n):\n    """Begin a call'
    plant(begins, begins.replace("partners", "partners, turn"), tmp_path / KERNELS)
    plant(
        "    epoch = tl.load(state) + 1\n    tl.store(state, epoch)",
        "    epoch = turn + 1\n    tl.store(state, epoch)",
        tmp_path / KERNELS,
    )
    launch = 'self._launch("announce", 1, places=self.announced)'
    plant(launch, launch[:-1] + ", turn=int(self.state[0]))", tmp_path / HOST)
    verdict, detail = verified(case, tmp_path)
    assert verdict == "failed"
    assert "call 3 timed out waiting" in detail


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_fault_nothing_is_found(kind: str, runner: Runner, tmp_path: Path) -> None:
    report = runner.run(small(kind, tmp_path))
    assert report.verdict == "ok", report.detail
    assert "order" in report.checks


def test_processes_say_who_waits_for_what(tmp_path: Path) -> None:
    """Parts are there, and a flag is not: every rank gives up, and says for which part."""
    case = small("gather", tmp_path)
    plant("for job in range(number)", "for job in range(number - 1)", tmp_path / KERNELS)
    for rank, answers in enumerate(multiplied([case], 2, tmp_path, 100_000)):
        assert len(answers) == 1
        assert f"device {rank}, " in answers[0]
        other = "[8, 16)" if rank == 0 else "[0, 8)"
        assert (
            f"call 1 timed out waiting for lhs {other} x [0, 12) of device {1 - rank}" in answers[0]
        )


def test_a_self_check_of_smaller_matrices_repeats_the_loop_over_j(tmp_path: Path) -> None:
    """A loop that skips every second block of j, in a matmul that is too large to check whole."""
    lhs, rhs, out = CASE_4
    given = sw.Matmul("bfloat16", ((512, 1024), lhs), ((1024, 512), rhs), out, mesh=PAIR)
    plan = plan_matmul(given, "h100:2", loop="pulled", listed=0)
    write_module(plan, "m", tmp_path / "bundles", backend="triton_gpu")
    assert "scaled down" in _self_check(tmp_path).stdout
    module = tmp_path / "bundles" / KERNELS
    plant("(start, start + depth, 64)", "(start, start + depth, 128)", module)
    found = _self_check(tmp_path)
    assert found.returncode == 1
    assert "wrong product" in found.stderr


def _self_check(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bundles.m.triton_gpu"]
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
