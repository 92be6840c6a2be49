"""Matmuls whose parts travel while devices multiply: in TPU interpret mode, and faults planted."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matmuls import matrix_shardings, verified, write_module
from sweeps import swept

import shardwright as sw
from shardwright.codegen.backends.pallas_tpu.matmul.blocks import STRETCH, LocalProduct
from shardwright.codegen.backends.pallas_tpu.verify.trace import Copy, traced_product
from shardwright.codegen.emit.support import text as support_text
from shardwright.codegen.planner.matmul.plan import plan_matmul
from shardwright.codegen.verify.load import load
from shardwright.codegen.verify.matmul_case import MatmulCase
from shardwright.codegen.verify.pool import Runner
from shardwright.ir.matmul_plan import MatmulPlan

RING = sw.Mesh({"i": 4})
ROWS, COLUMNS, WHOLE = '[{"i"}, {}]', '[{}, {"i"}]', "[{}, {}]"


def gathers(dtype: str, extents: tuple[int, int, int]) -> sw.Matmul:
    """A matmul whose lhs is gathered along i."""
    i, j, k = extents
    return sw.Matmul(dtype, ((i, j), ROWS), ((j, k), WHOLE), WHOLE, mesh=RING)


def scatters(dtype: str, extents: tuple[int, int, int]) -> sw.Matmul:
    """A matmul whose result is scattered along i."""
    i, j, k = extents
    return sw.Matmul(dtype, ((i, j), COLUMNS), ((j, k), ROWS), ROWS, mesh=RING)


@pytest.mark.parametrize("loop", ["one", "both"])
def test_gathers_and_scatters_equal_numpy(loop: str, tmp_path: Path) -> None:
    """Integers bit by bit. Nothing races, no semaphore is left, events keep the rules."""
    matmuls = [gathers("int8", (32, 24, 10)), scatters("int8", (32, 40, 10))]
    sides = []
    for _, plan, report in verified(matmuls, tmp_path, loop, backend="pallas_tpu"):
        assert report.verdict == "ok", report.detail
        assert {"values", "races", "semaphores", "protocol"} <= set(report.checks)
        assert plan.chosen.loop is not None
        sides.append(plan.chosen.loop.side)
    assert sides == ["lhs", "out"]


COMES = "pltpu.make_async_copy(come, come, memory.came.at[way, step - 1]).wait()"
LOADED = 'for side in "ab":\n            self.loaded(side, block, lambda copy: copy.wait())\n'
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
    "blocks are read before they have come": (
        "both",
        LOADED,
        LOADED.replace("self", "pl.when(j > 0)(lambda side=side: self").replace(
            "wait())", "wait()))"
        ),
        "semaphore 'loaded_a[",
    ),
    "blocks are waited for after their product": (
        "both",
        (LOADED, "add_product(total, *operands)\n"),
        ("pass\n", "add_product(total, *operands)\n        " + LOADED),
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
        "pl.when(number >= 2)(lambda: self.stored(slot).wait())",
        "pass",
        "semaphore 'stored[0]'",
    ),
    "blocks share a place": ("both", "return rem(block.number, 2)", "return 0", "_blocks' of rank"),
    "the last blocks are not waited for": (
        "both",
        "self.stored(np.int32(number % 2)).wait()",
        "pass",
        "semaphore 'stored[0]'",
    ),
}
"""What is wrong: in which kernels, what is written in place of what, and what is then said."""


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with Runner("pallas_tpu", 4) as found:
        yield found


@pytest.fixture(scope="module")
def plans() -> dict[str, MatmulPlan]:
    """Of parts that are several blocks each."""
    found = {
        "gather": plan_matmul(gathers("float32", (4 * 2 * 520, 1100, 10)), loop="both", listed=0),
        "scatter": plan_matmul(scatters("float32", (64, 4400, 1100)), loop="both", listed=0),
    }
    loops = {kind: plan.chosen.loop for kind, plan in found.items()}
    assert {kind: loop and loop.side for kind, loop in loops.items()} == {
        "gather": "lhs",
        "scatter": "out",
    }
    return found


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (name, kind)
        for name, (where, *_) in FAULTS.items()
        for kind in ("gather", "scatter")
        if where in (kind, "both")
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
    file = root / "_support" / "pallas_products.py"
    text = file.read_text()
    assert right in text, right
    file.write_text(text.replace(right, wrong))


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


@pytest.mark.parametrize("kind", ["gather", "scatter"])
def test_kernels_keep_the_rules_at_full_size(
    kind: str, plans: dict[str, MatmulPlan], runner: Runner, tmp_path: Path
) -> None:
    case = replace(write_module(plans[kind], "m", tmp_path, backend="pallas_tpu"), execute=False)
    report = runner.run(case)
    assert report.verdict == "ok", report.detail
    assert "protocol" in report.checks


GRID = sw.Mesh({"x": 2, "y": 2})
COUPLES = {
    "gather": ('[{"y"}, {}]', '[{}, {"x"}]', '[{}, {"x"}]'),
    "scatter": ('[{"x"}, {"y"}]', '[{"y"}, {}]', '[{"x"}, {"y"}]'),
}


@pytest.mark.parametrize("kind", COUPLES)
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


def test_sums_leave_by_both_links_in_turn(plans: dict[str, MatmulPlan], tmp_path: Path) -> None:
    case = write_module(plans["scatter"], "m", tmp_path, backend="pallas_tpu")
    module = load(case.module)
    for rank, events in enumerate(traced_product(module, module._RING)):
        sent = [each.to for each in events if isinstance(each, Copy) and each.to != rank]
        assert len(set(sent)) == 2
        assert len(sent) > 2 * 2 * 3  # of each of two ways, in three steps, several blocks
        assert all(one != other for one, other in itertools.pairwise(sent))


def test_what_is_no_mesh(plans: dict[str, MatmulPlan], tmp_path: Path) -> None:
    """Said before anything is asked of its devices."""
    jax = pytest.importorskip("jax")
    module = load(write_module(plans["gather"], "m", tmp_path, backend="pallas_tpu").module)
    expected = "expected a jax.sharding.Mesh"
    with pytest.raises(TypeError, match=f"^lhs mesh: got NoneType, {expected}$"):
        module.matmul(None, None, None)
    with pytest.raises(TypeError, match=f"^lhs mesh: got AbstractMesh, {expected}$"):
        module.matmul(None, None, jax.sharding.AbstractMesh((4,), ("i",)))
    with pytest.raises(ValueError, match=r"^lhs mesh: got 1 devices, expected 4$"):
        module.matmul(None, None, jax.make_mesh((1,), ("i",), devices=jax.devices()[:1]))


def test_a_module_alone_has_all_of_its_support(plans: dict[str, MatmulPlan]) -> None:
    bundle = sw.emit(plans["gather"], backends=("pallas_tpu",), single_file=True)
    assert "class RingKernel(" in bundle.modules("as a test")["pallas_tpu.py"]


def test_blocks_are_as_many_stretches_as_kernels_multiply() -> None:
    stretch = re.search(r"^STRETCH = (\d+)", support_text("pallas_products"), re.MULTILINE)
    assert stretch is not None
    assert int(stretch[1]) == STRETCH


def test_blocks_fit_vmem() -> None:
    for travels, factor in (("a", 1), ("a", 2), ("b", 3), ("c", 1), ("c", 3), ("b", 0)):
        for dtype in ("bfloat16", "int8", "float32"):
            for extents in ((1, 512, 8192, 1024), (3, 5, 13, 7), (1, 4096, 128, 4096)):
                product = LocalProduct(extents, travels, factor, dtype, dtype)
                for vmem in (16 << 20, 56 << 20, 112 << 20):
                    assert product.blocks(vmem).nbytes <= vmem * 5 // 8


MESHES = ({"x": 2}, {"x": 4}, {"x": 2, "y": 2}, {"x": 8}, {"x": 2, "y": 4})
TYPES = (("int8", "int32"), ("int8", None), ("bfloat16", None), ("bfloat16", "float32"))
TOPOLOGIES = {2: "torus:2,wrap=0", 4: "v5e:2x2", 8: "v5e:2x4"}


def drawn(rng: random.Random) -> tuple[sw.Matmul, str | None, str]:
    """A matmul that has a loop, the topology whose rings it takes, if any, and the loop."""
    while True:
        mesh = sw.Mesh(rng.choice(MESHES))
        texts = matrix_shardings(mesh.names)
        batch = rng.choice((0, 0, 0, 1))
        lead = "{}, " * batch
        i, j, k = (rng.choice((8, 24, 40, 200, 264)) for _ in range(3))
        lhs, rhs, out = (f"[{lead}{rng.choice(texts)[1:]}" for _ in range(3))
        dtype, out_dtype = rng.choice(TYPES)
        shapes = ((3,) * batch + (i, j), (3,) * batch + (j, k))
        matmul = sw.Matmul(dtype, (shapes[0], lhs), (shapes[1], rhs), out, out_dtype, mesh=mesh)
        topology, loop = rng.choice((None, TOPOLOGIES[mesh.size])), rng.choice(("one", "both"))
        try:
            plan = plan_matmul(matmul, topology, loop=loop, listed=0)
            sw.emit(plan, backends=("pallas_tpu",)).modules("a test")
        except sw.InputError:  # nothing goes round a ring, or not to a neighbour
            continue
        return matmul, topology, loop


def in_small_blocks(case: MatmulCase, rng: random.Random) -> None:
    """Have the kernel of a module take small blocks, many of them."""
    text = case.module.read_text()
    (extents,) = re.findall(r"blocks=\(1, (\d+), (\d+), (\d+)\)", text)
    i, j, k = map(int, extents)
    text = re.sub(
        r"blocks=\(.*?\)", f"blocks=(1, {min(i, 32)}, {min(j, 128)}, {min(k, 128)})", text
    )
    text = re.sub(r"stays=\w+", f"stays={rng.random() < 0.5}", text)
    case.module.write_text(text)


@pytest.mark.parametrize("seed", swept(range(16), 4))
def test_random_kernels_equal_numpy(seed: int, tmp_path: Path) -> None:
    """All that may travel, along all factors, on 2 to 8 devices, in large blocks and small ones."""
    rng = random.Random(seed)
    with Runner("pallas_tpu", 8) as runner:
        for number in range(2):
            matmul, topology, loop = drawn(rng)
            plan = plan_matmul(matmul, topology, loop=loop, listed=0)
            case = write_module(plan, f"m{number}", tmp_path, backend="pallas_tpu")
            if number:
                in_small_blocks(case, rng)
            report = runner.run(case)
            assert report.verdict == "ok", f"{matmul} {topology} {loop}: {report.detail}"


def test_sums_in_hbm_equal_numpy(runner: Runner, tmp_path: Path) -> None:
    """Where parts are along j, and sums do not fit VMEM, each part adds to what is in HBM."""
    report = runner.run(along_j(False, tmp_path))
    assert report.verdict == "ok", report.detail


def along_j(keeps: bool, root: Path) -> MatmulCase:
    """A module whose kernel takes parts along j, in four blocks of the result, and `keeps` all
    sums in VMEM or none."""
    sides = ((32, 256), COLUMNS), ((256, 256), WHOLE)
    plan = plan_matmul(sw.Matmul("bfloat16", *sides, WHOLE, mesh=RING), loop="both", listed=0)
    assert plan.chosen.loop is not None
    case = write_module(plan, "m", root, backend="pallas_tpu")
    text = case.module.read_text()
    assert '"a",\n    "j",' in text
    text = re.sub(r"blocks=\(.*?\)", "blocks=(1, 16, 128, 128)", text)
    case.module.write_text(text.replace("keeps=True", f"keeps={keeps}"))
    return case


def test_types_that_kernels_do_not_multiply_are_refused() -> None:
    matmul = sw.Matmul("float16", ((8, 8), WHOLE), ((8, 8), WHOLE), WHOLE, mesh=RING)
    with pytest.raises(sw.InputError) as caught:
        sw.emit(matmul, backends=("pallas_tpu",))
    assert str(caught.value) == (
        "dtype: pallas_tpu does not multiply such elements\n"
        "got: float16\n"
        "expected: one of bfloat16, float32, int8"
    )


def test_gradients_travel_too(tmp_path: Path) -> None:
    """The matmuls of cotangents are kernels of their own where a loop is taken."""
    plan = plan_matmul(scatters("float32", (16, 40, 8)), loop="both", listed=0)
    with Runner("pallas_tpu", 4) as runner:
        case = write_module(plan, "m", tmp_path, gradient=True, backend="pallas_tpu")
        report = runner.run(case)
    assert report.verdict == "ok", report.detail
    assert "derivative" in report.checks
