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
from shardwright.codegen.planner.matmul.plan import plan_matmul
from shardwright.codegen.verify.pool import Runner
from shardwright.ir.matmul_plan import MatmulPlan


@pytest.fixture
def runner() -> Runner:
    return running.runner("pallas_tpu")


@pytest.fixture(scope="module")
def plans() -> dict[str, MatmulPlan]:
    return of_several_blocks()


COMES = "pltpu.make_async_copy(come, come, memory.came.at[way, step - 1]).wait()"
LOADED = 'for side in "ab":\n            self.take(side, block)\n'
PASSED = """
            if self.of.gathers:
                pl.when(step < self.of.size - 1)(lambda: self.pass_on(way, step, come))"""
MADE = """
            pl.when(later)(lambda: put_sum(made, total, terms))
            pl.when(later ^ True)(lambda: put_sum(made, total))"""
SENT = """
                device_id=self.neighbour(block.way),
                device_id_type=LOGICAL,
            ).start()
"""
MASKED = "pl.when(is_last)(lambda: mask(whole, axis, end, min(of.ends) // LANES))"
FAULTS: dict[str, tuple[Any, ...]] = {
    "no wait for what comes": ("both", COMES, "pass", "semaphore 'came[0, 0]'"),
    "no wait for what leaves": (
        "gather",
        "each(of.size - 1, lambda _, way=way: self.gone(way).wait())",
        "pass",
        "semaphore 'sent[0]'",
    ),
    "one semaphore for all steps": (
        "gather",
        "self.memory.came.at[way, step],",
        "self.memory.came.at[way, 0],",
        "semaphore 'came[0, 0]'",
    ),
    "one semaphore for both ways": (
        "both",
        "came.at[way, step - 1]",
        "came.at[0, step - 1]",
        "semaphore 'came[0, 0]'",
    ),
    # A copy tells who waits for it that it is there: data that is copied before it is there is a
    # flag before its data.
    "a part is passed on before it has come": (
        "gather",
        COMES + PASSED,
        PASSED.lstrip() + "\n            " + COMES,
        "reads 'come' of rank 0 at [0, 0, 0, 0] while rank 3 writes there",
    ),
    "a block is sent before it is made": (
        "scatter",
        (MADE, SENT),
        ("", SENT + MADE.replace("\n    ", "\n").replace("made,", "memory.made.at[slot],")),
        "writes 'made' of rank",
    ),
    # Of a call before this one nothing but a count of a semaphore can be left over.
    "a signal that the next call counts": (
        "both",
        "for way in range(self.of.ways):\n            self.signal(",
        "for way in (0, *range(self.of.ways)):\n            self.signal(",
        "barrier: rank 0 writes into rank 1 after 2 of 3",
    ),
    "a step is skipped": (
        "gather",
        "total = of.rounds *",
        "total = (of.rounds - of.ways) *",
        "semaphore",
    ),
    "a wrong part": ("both", "by = size - shift", "by = size - shift + 1", "not the sum of its"),
    "the halves the other way round": (
        "both",
        "jnp.where(block.way == 0, by, shift)",
        "jnp.where(block.way == 0, shift, by)",
        "not the sum of its",
    ),
    "no barrier": (
        "both",
        "pl.semaphore_wait(barrier, self.of.ways)",
        "pass",
        "barrier: rank 0 writes into rank 1 after 0 of 2",
    ),
    "nobody is told": ("both", "        self.meet()\n", "", "has not told it that it may"),
    "a double addition": (
        "scatter",
        "put_sum(made, total, terms)",
        "put_sum(made, total, terms, terms)",
        "not the sum of its",
    ),
    "sums are not begun anew": (
        "both",
        "pl.when(begins)(lambda: clear(total))",
        "pass",
        "reads sums[0], never written",
    ),
    "sums are begun anew once": (
        "both",
        "pl.when(begins)(",
        "pl.when(block.number == 0)(",
        "not the sum of its",
    ),
    "sums are begun anew with every product": (
        "both",
        "(put_product if of.is_whole else add_product)",
        "put_product",
        "not the sum of its",
    ),
    "blocks are read before they have come": (
        "both",
        LOADED,
        LOADED.replace("self", "pl.when(j > 0)(lambda side=side: self").replace(
            "block)", "block))"
        ),
        "semaphore 'loaded_a[",
    ),
    "blocks are waited for after their product": (
        "both",
        (LOADED, "add_product)(total, *operands)\n"),
        ("pass\n", "add_product)(total, *operands)\n        " + LOADED),
        "reads 'a_blocks'",
    ),
    "terms are waited for after they are added": (
        "scatter",
        "self.added(block, True, lambda copy: copy.wait())",
        "pass",
        "semaphore 'added[0]'",
    ),
    "a block is made while it is being sent": (
        "both",
        "pl.when(number >= 2)(lambda: self.stored(self.numbered(before)).wait())",
        "pass",
        "semaphore 'stored[0]'",
    ),
    "blocks share a place": ("both", "return rem(block.number, 2)", "return 0", "_blocks' of rank"),
    "the last blocks are not waited for": (
        "both",
        "self.stored(self.numbered(np.int32(total - 1 - last * of.counts[DIM_J]))).wait()",
        "pass",
        "semaphore 'stored[0]'",
    ),
    "what is behind the end of j is multiplied": ("both", MASKED, "pass", "not the sum of its"),
    "zeros begin too late": ("both", MASKED, MASKED.replace("end,", "end + 1,"), "not the sum of"),
    "blocks at the ends are not cut": (
        "both",
        "sizes.append(array.size(f, block.way, block.place[f], size))",
        "sizes.append(size)",
        "window outside its buffer",
    ),
    "what comes is waited for without the rest of its tiles": (
        "scatter",
        "        found.shape = found.given(interpret=whole)\n",
        "",
        "semaphore 'came[0, 0]'",
    ),
    "the next block begins too late": (
        "both",
        "+ block.place[f] * size)",
        "+ block.place[f] * (size + array.tiles[f]))",
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
        plant(right, wrong, tmp_path)
    report = runner.run(case)
    assert report.verdict == "failed", fault
    assert said in report.detail


def plant(right: str, wrong: str, root: Path) -> None:
    """Write one text in place of another in the support module of kernels below a root."""
    files = [root / "_support" / f"pallas_{name}.py" for name in ("products", "blocks")]
    (file,) = (file for file in files if right in file.read_text())
    file.write_text(file.read_text().replace(right, wrong))


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
    plant("if of.ends:", f'if of.ends and side != "{side}":', tmp_path)
    report = runner.run(case)
    assert (report.verdict, "nan" in report.detail) == ("failed", True), report.detail


ADDED_TO = "return (block.step > 0) | (self.of.gathers & (block.way > 0))"


@pytest.mark.parametrize(
    ("keeps", "right", "wrong", "said"),
    [
        (True, "pl.when(begins)(lambda: clear(total))", "pass", "reads sums[0], never written"),
        (False, ADDED_TO, "return block.step >= 0", "reads c[0, 0, 0], never written"),
    ],
    ids=["sums in VMEM are not begun", "the first sums are added to what is in HBM"],
)
def test_sums_of_what_nothing_wrote_are_found(
    keeps: bool, right: str, wrong: str, said: str, runner: Runner, tmp_path: Path
) -> None:
    """Where parts are along j, and all add to the same sums."""
    case = replace(along_j(keeps, tmp_path), execute=False)
    plant(right, wrong, tmp_path)
    report = runner.run(case)
    assert (report.verdict, said in report.detail) == ("failed", True), report.detail


def test_a_product_that_is_added_to_nothing_is_found(runner: Runner, tmp_path: Path) -> None:
    """Where one product is all of a block's sums, nothing begins them."""
    plan = plan_matmul(gathers("int8", (32, 24, 10)), loop="both", listed=0)
    case = replace(write_module(plan, "m", tmp_path, backend="pallas_tpu"), execute=False)
    assert runner.run(case).verdict == "ok"
    plant("(put_product if of.is_whole else add_product)", "add_product", tmp_path)
    report = runner.run(case)
    assert (report.verdict, "reads sums[0], never written" in report.detail) == ("failed", True)


GRID = sw.Mesh({"x": 2, "y": 2})
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
    text, right = case.module.read_text(), "digits=((1, 2),)"
    assert text.count(right) == 1
    case.module.write_text(text.replace(right, "digits=((2, 2),)"))
    report = runner.run(case)
    assert report.verdict == "failed"
    assert "of its ring has another part of" in report.detail
