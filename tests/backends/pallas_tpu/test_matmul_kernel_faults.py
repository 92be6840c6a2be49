"""Faults planted in kernels of matmuls, each found without moving anything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import running
from matmul_kernels import along_j, gathers, of_several_blocks
from matmuls import write_module
from sweeps import sampled

import shardwright as sw
from shardwright.codegen.checks.matmul_case import MatmulCase
from shardwright.codegen.moves.matmul.plan import plan_matmul
from shardwright.codegen.operations.verify.pool import Runner
from shardwright.ir.matmul_plan import MatmulPlan


@pytest.fixture
def runner() -> Runner:
    return running.runner("pallas_tpu")


@pytest.fixture(scope="module")
def plans() -> dict[str, MatmulPlan]:
    return of_several_blocks()


COMES = "pltpu.make_async_copy(half, half, recv.at[block.way, block.step - 1]).wait()"
PASSED = "pl.when(block.step < 3)(lambda: pass_on(block.way, block.step, half))"
LOADED = "        take_a(block)\n"
MADE = """
        @pl.when(block.step > 0)
        def add():
            terms_of(block).wait()  # started in `multiply`
            put_sum(made.at[slot], total, terms.at[slot])

        pl.when(block.step == 0)(lambda: put_sum(made.at[slot], total))
"""
SENT = """
                here, there, left, arrived, device_id=to, device_id_type=LOGICAL
            ).start()
"""
MASKED = "(lambda: mask(whole, 1, "
STORED = "(lambda: leave(block_of(block.number"
FAULTS: dict[str, tuple[Any, ...]] = {
    "no wait for what comes": ("both", COMES, "pass", "semaphore 'recv[0, 0]'"),
    "no wait for what leaves": (
        "gather",
        "each(3, lambda _, gone=gone: gone.wait())",
        "pass",
        "semaphore 'sent[0]'",
    ),
    "one semaphore for all steps": (
        "gather",
        "sent.at[way], recv.at[way, step],",
        "sent.at[way], recv.at[way, 0],",
        "semaphore 'recv[0, 0]'",
    ),
    "one semaphore for both ways": (
        "both",
        "recv.at[block.way, block.step - 1]",
        "recv.at[0, block.step - 1]",
        "semaphore 'recv[0, 0]'",
    ),
    # A copy tells who waits for it that it is there: data that is copied before it is there is a
    # flag before its data.
    "a part is passed on before it has come": (
        "gather",
        f"{COMES}\n            {PASSED}",
        f"{PASSED}\n            {COMES}",
        "reads 'inbox' of rank 0 at [0, 0, 0, 0] while rank 3 writes there",
    ),
    "a block is sent before it is made": (
        "scatter",
        (MADE, SENT),
        ("", SENT + MADE),
        "writes 'made' of rank",
    ),
    # Of a call before this one nothing but a count of a semaphore can be left over.
    "a signal that the next call counts": (
        "both",
        "pl.semaphore_signal(barrier, 1, device_id=before,",
        "pl.semaphore_signal(barrier, 2, device_id=before,",
        "barrier: rank 0 writes into rank 1 after 2 of 3",
    ),
    "a step is skipped": ("gather", "each(32, advance)", "each(24, advance)", "semaphore"),
    "a wrong part": ("both", "rem(place + ", "rem(place + 1 + ", "not the sum of its"),
    "the halves the other way round": (
        "both",
        "jnp.where(block.way == 0, ",
        "jnp.where(block.way > 0, ",
        "not the sum of its",
    ),
    "no barrier": (
        "both",
        "pl.semaphore_wait(barrier, 2)",
        "pass",
        "barrier: rank 0 writes into rank 1 after 0 of 2",
    ),
    "nobody is told": (
        "both",
        (
            "pl.semaphore_signal(barrier, 1, device_id=before, device_id_type=LOGICAL)",
            "pl.semaphore_signal(barrier, 1, device_id=after, device_id_type=LOGICAL)",
            "pl.semaphore_wait(barrier, 2)",
        ),
        ("pass",) * 3,
        "without a signal from it",
    ),
    "a double addition": (
        "scatter",
        "put_sum(made.at[slot], total, terms.at[slot])",
        "put_sum(made.at[slot], total, terms.at[slot], terms.at[slot])",
        "not the sum of its",
    ),
    "sums are not begun anew": (
        "both",
        "pl.when(is_first)(lambda: clear(total))",
        "pass",
        "reads sums[0], which was never written",
    ),
    "sums are begun anew once": (
        "both",
        "is_first = block.j == 0",
        "is_first = block.number == 0",
        "not the sum of its",
    ),
    "sums are begun anew with every product": (
        "both",
        "is_first = block.j == 0",
        "is_first = block.j >= 0",
        "not the sum of its",
    ),
    "blocks are read before they have come": (
        "both",
        LOADED,
        "        pl.when(block.j > 0)(lambda: take_a(block))\n",
        "semaphore 'read_a[",
    ),
    "blocks are waited for after their product": (
        "both",
        (LOADED, "        is_last = "),
        ("", f"{LOADED}        is_last = "),
        "reads 'a_blocks'",
    ),
    "terms are waited for after they are added": (
        "scatter",
        "terms_of(block).wait()",
        "pass",
        "semaphore 'added[0]'",
    ),
    "a block is made while it is being sent": (
        "both",
        "pl.when(number >= 2)(",
        "pl.when(number < 0)(",
        "semaphore 'stored[0]'",
    ),
    "blocks share a place": (
        "both",
        "rem(block.number, 2)",
        "np.int32(0)",
        "_blocks' of rank",
    ),
    "the last blocks are not waited for": (
        "both",
        "leave(block_of(np.int32(",
        "str(block_of(np.int32(",
        "semaphore 'stored[",
    ),
    "what is behind the end of j is multiplied": (
        "both",
        MASKED,
        "(lambda: print(whole, 1, ",
        "not the sum of its",
    ),
    "zeros begin too late": ("both", f"{MASKED}2", f"{MASKED}1 + 2", "not the sum of"),
    "blocks at the ends are not cut": ("both", "minimum(", "max(", "window outside its buffer"),
    "what comes is waited for without the rest of its tiles": (
        "scatter",
        "inbox=TiledArray((3, 1, 16, 3456)",
        "inbox=TiledArray((3, 1, 16, 3400)",
        "semaphore 'recv[0, 0]'",
    ),
    "the next block begins too late": (
        "gather",
        "+ block.i * 304",
        "+ block.i * 312",
        "window outside its buffer",
    ),
}
"""What is wrong: in which kernels, what is written in place of what, and what is then said."""


KINDS = ("gather", "scatter")
QUICKLY = (
    *("no wait for what comes", "no wait for what leaves", "one semaphore for both ways"),
    *("a part is passed on before it has come", "a block is sent before it is made"),
    *("no barrier", "nobody is told", "a wrong part", "sums are not begun anew"),
    *("blocks are waited for after their product", "blocks at the ends are not cut"),
    "what comes is waited for without the rest of its tiles",
)
"""Each check of events and of what they make. The long sweep plants all, each in the first kernel
that can have it, `make exhaustive` in the other one too."""
assert {*QUICKLY} <= {*FAULTS}


def marked(name: str, *, again: bool) -> list[pytest.MarkDecorator]:
    """Which run plants a fault; `again`: in a second kernel."""
    if again:
        return [pytest.mark.exhaustive]
    return [] if name in QUICKLY else [pytest.mark.slow]


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        pytest.param(name, kind, marks=marked(name, again=again > 0))
        for name, (where, *_) in FAULTS.items()
        for again, kind in enumerate(KINDS if where == "both" else [where])
    ],
)
def test_planted_faults_are_found_on_events(
    fault: str, kind: str, plans: dict[str, MatmulPlan], runner: Runner, tmp_path: Path
) -> None:
    """At full size, without moving anything."""
    _, rights, wrongs, said = FAULTS[fault]
    case = replace(write_module(plans[kind], "m", tmp_path, backend="pallas_tpu"), execute=False)
    texts = (rights, wrongs) if isinstance(rights, tuple) else ((rights,), (wrongs,))
    for right, wrong in zip(*texts, strict=True):
        plant(right, wrong, case)
    report = runner.run(case)
    assert report.verdict == "failed", fault
    assert said in report.detail


def plant(right: str, wrong: str, case: MatmulCase) -> None:
    """Write one text in place of another in the kernel of a module."""
    text = case.module.read_text()
    assert right in text, right
    case.module.write_text(text.replace(right, wrong))


@pytest.mark.slow
@pytest.mark.parametrize("side", ["a", pytest.param("b", marks=pytest.mark.exhaustive)])
def test_what_is_behind_the_end_of_an_operand_is_found(
    side: str, runner: Runner, tmp_path: Path
) -> None:
    """Memory has NaN there, in TPU interpret mode too, of which zeros of the other operand make NaN
    again."""
    plan = plan_matmul(gathers("bfloat16", (32, 200, 10)), loop="both", listed=0)
    case = write_module(plan, "m", tmp_path, backend="pallas_tpu")
    assert runner.run(case).verdict == "ok"
    axis = "ab".index(side)
    plant(f"(lambda: mask(whole, {1 - axis}, ", f"(lambda: print(whole, {1 - axis}, ", case)
    report = runner.run(case)
    assert (report.verdict, "nan" in report.detail) == ("failed", True), report.detail


@pytest.mark.parametrize(
    ("keeps", "right", "wrong", "said"),
    [
        (
            True,
            "pl.when(is_first)(lambda: clear(total))",
            "pass",
            "reads sums[0], which was never written",
        ),
        (
            False,
            "block.step + block.way > 0",
            "block.step >= 0",
            "reads c[0, 0, 0], which was never written",
        ),
    ],
    ids=["sums in VMEM are not begun", "the first sums are added to what is in HBM"],
)
def test_sums_of_what_nothing_wrote_are_found(
    keeps: bool, right: str, wrong: str, said: str, runner: Runner, tmp_path: Path
) -> None:
    """Where parts are along j, and all add to the same sums."""
    case = replace(along_j(keeps, tmp_path), execute=False)
    plant(right, wrong, case)
    report = runner.run(case)
    assert (report.verdict, said in report.detail) == ("failed", True), report.detail


def test_a_product_that_is_added_to_nothing_is_found(runner: Runner, tmp_path: Path) -> None:
    """Where one product is all of a block's sums, nothing begins them."""
    plan = plan_matmul(gathers("int8", (32, 24, 10)), loop="both", listed=0)
    case = replace(write_module(plan, "m", tmp_path, backend="pallas_tpu"), execute=False)
    assert runner.run(case).verdict == "ok"
    plant("put_product(total, *operands)", "put_sum(total, total, *operands)", case)
    report = runner.run(case)
    assert (report.verdict, "reads sums[0], which was never written" in report.detail) == (
        "failed",
        True,
    )


GRID = sw.Mesh({"x": 2, "y": 2})
RINGS = ((0, 1), (2, 3)), ((0, 2), (1, 3))
"""Those along y, and those along x."""
COUPLES = {
    "gather": ('[{"y"}, {}]', '[{}, {"x"}]', '[{}, {"x"}]'),
    "scatter": ('[{"x"}, {"y"}]', '[{"y"}, {}]', '[{"x"}, {"y"}]'),
}


@pytest.mark.parametrize("kind", sampled(COUPLES, "scatter"))
def test_rings_of_other_devices_are_found(kind: str, runner: Runner, tmp_path: Path) -> None:
    """Without moving anything: the boxes of a module say whose parts belong together."""
    lhs, rhs, out = COUPLES[kind]
    matmul = sw.Matmul("float32", ((64, 256), lhs), ((256, 256), rhs), out, mesh=GRID)
    plan = plan_matmul(matmul, loop="one", listed=0)
    case = replace(write_module(plan, "m", tmp_path, backend="pallas_tpu"), execute=False)
    assert runner.run(case).verdict == "ok"
    right, wrong = (
        str(tuple(ring[:: 1 if kind == "gather" else -1] for ring in each)) for each in RINGS
    )
    plant(right, wrong, case)
    report = runner.run(case)
    assert report.verdict == "failed"
    assert "of its ring has a different part of" in report.detail
