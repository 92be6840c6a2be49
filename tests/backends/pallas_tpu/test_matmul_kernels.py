"""Matmuls whose parts travel while devices multiply: in TPU interpret mode, and faults planted."""

from __future__ import annotations

import itertools
import random
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import running
from matmul_kernels import (
    RING,
    WHOLE,
    along_j,
    blocked,
    gathers,
    of_several_blocks,
    scatters,
)
from matmuls import matrix_shardings, verified, write_module
from sweeps import sampled, swept

import shardwright as sw
from shardwright.codegen.backends.pallas_tpu.matmul.blocks import LocalProduct
from shardwright.codegen.backends.pallas_tpu.verify.events import Copy
from shardwright.codegen.backends.pallas_tpu.verify.trace import traced_product
from shardwright.codegen.checks.load import load
from shardwright.codegen.moves.matmul.plan import plan_matmul
from shardwright.codegen.operations.verify.pool import Runner
from shardwright.ir.matmul_plan import MatmulPlan


@pytest.fixture
def runner() -> Runner:
    return running.runner("pallas_tpu")


@pytest.fixture(scope="module")
def plans() -> dict[str, MatmulPlan]:
    return of_several_blocks()


@pytest.mark.parametrize("loop", sampled(["one", "both"], "both"))
def test_gathers_and_scatters_equal_numpy(loop: str, tmp_path: Path) -> None:
    """Integers bit by bit. Nothing races, no semaphore is left, events keep the rules."""
    matmuls = [scatters("int8", (32, 40, 10))]
    if loop == "one":  # in the long sweep
        matmuls.insert(0, gathers("int8", (32, 24, 10)))
    sides = []
    for _, plan, report in verified(matmuls, tmp_path, loop, backend="pallas_tpu"):
        assert report.verdict == "ok", report.detail
        assert {"values", "races", "semaphores", "protocol"} <= set(report.checks)
        assert plan.chosen.loop is not None
        sides.append(plan.chosen.loop.side)
    assert sides == ["lhs", "out"][-len(matmuls) :]


def test_a_gather_in_several_blocks_of_j_equals_numpy(runner: Runner, tmp_path: Path) -> None:
    """The loop over j of `matmul_gather_kernel`, whose twin has one block: here two of j, and two
    of k, for the halves of four parts along i."""
    plan = plan_matmul(gathers("bfloat16", (128, 256, 256)), loop="both", listed=0)
    with blocked((1, 16, 128, 128)):
        case = write_module(plan, "m", tmp_path, backend="pallas_tpu")
    text = case.module.read_text()
    assert 'travels="a",\n    factor="i",' in text
    assert "j=rem(number, 2)," in text
    report = runner.run(case)
    assert report.verdict == "ok", report.detail
    assert {"values", "races", "semaphores", "protocol"} <= set(report.checks)


@pytest.mark.parametrize("kind", sampled(["gather", "scatter"], "gather"))
def test_kernels_keep_the_rules_at_full_size(
    kind: str, plans: dict[str, MatmulPlan], runner: Runner, tmp_path: Path
) -> None:
    case = replace(write_module(plans[kind], "m", tmp_path, backend="pallas_tpu"), execute=False)
    report = runner.run(case)
    assert report.verdict == "ok", report.detail
    assert "protocol" in report.checks


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
    assert "class RingMatmul:" in bundle.modules("as a test")["pallas_tpu.py"]


def test_blocks_fit_vmem() -> None:
    for travels, factor in (("a", 1), ("a", 2), ("b", 3), ("c", 1), ("c", 3), ("b", 0)):
        for dtype in ("bfloat16", "int8", "float32"):
            for extents in ((1, 512, 8192, 1024), (3, 5, 13, 7), (1, 4096, 128, 4096)):
                product = LocalProduct(extents, travels, factor, dtype, dtype)
                for vmem in (16 << 20, 56 << 20, 112 << 20):
                    assert product.blocks(vmem).nbytes <= vmem * 5 // 8


MESHES = ({"x": 2}, {"x": 4}, {"x": 2, "y": 2}, {"x": 8}, {"x": 2, "y": 4})
TYPES = (
    ("int8", "int32"),
    ("int8", None),
    ("bfloat16", None),
    ("bfloat16", "float32"),
    ("float32", None),
)
TOPOLOGIES = {2: "torus:2,wrap=0", 4: "v5e:2x2", 8: "v5e:2x4"}


def drawn(rng: random.Random) -> tuple[sw.Matmul, str | None, str]:
    """A matmul that has a loop, the topology whose rings it takes, if any, and the loop."""
    while True:
        mesh = sw.Mesh(rng.choice(MESHES))
        texts = matrix_shardings(mesh.names)
        batch = rng.choice((0, 0, 0, 1))
        lead = "{}, " * batch
        i, j, k = (rng.choice((5, 8, 24, 37, 40, 130, 200, 264)) for _ in range(3))
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


@pytest.mark.parametrize("seed", swept(range(16), 16))
def test_random_kernels_equal_numpy(seed: int, runner: Runner, tmp_path: Path) -> None:
    """All that may travel, along all factors, on 2 to 8 devices, in large blocks and small ones."""
    rng = random.Random(seed)
    for number in range(2):
        matmul, topology, loop = drawn(rng)
        plan = plan_matmul(matmul, topology, loop=loop, listed=0)
        rows = rng.choice((32, 64))  # whole tiles of memory of all types
        small = blocked((1, rows, 128, 128), stays=rng.random() < 0.5)
        with small if number else nullcontext():
            case = write_module(plan, f"m{number}", tmp_path, backend="pallas_tpu")
        report = runner.run(case)
        assert report.verdict == "ok", f"{matmul} {topology} {loop}: {report.detail}"


@pytest.mark.slow
def test_sums_in_hbm_equal_numpy(runner: Runner, tmp_path: Path) -> None:
    """Where parts are along j, and sums do not fit VMEM, each part adds to what is in HBM."""
    report = runner.run(along_j(False, tmp_path))
    assert report.verdict == "ok", report.detail


def test_types_that_kernels_do_not_multiply_are_refused() -> None:
    matmul = sw.Matmul("float16", ((8, 8), WHOLE), ((8, 8), WHOLE), WHOLE, mesh=RING)
    with pytest.raises(sw.InputError) as caught:
        sw.emit(matmul, backends=("pallas_tpu",))
    assert str(caught.value) == (
        "dtype: pallas_tpu cannot multiply this dtype\n"
        "got: float16\n"
        "expected: one of bfloat16, float32, int8"
    )


@pytest.mark.slow
def test_gradients_travel_too(runner: Runner, tmp_path: Path) -> None:
    """The matmuls of cotangents are kernels of their own where a loop is taken."""
    plan = plan_matmul(scatters("float32", (16, 40, 8)), loop="both", listed=0)
    case = write_module(plan, "m", tmp_path, gradient=True, backend="pallas_tpu")
    report = runner.run(case)
    assert report.verdict == "ok", report.detail
    assert "derivative" in report.checks
