"""Modules of matmuls in plain JAX: against numpy, on CPU devices, one fault found each."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from matmuls import DTYPES, matrix_shardings, random_matmul, verified, write_module
from running import reports_of
from sweeps import sampled, swept

import shardwright as sw
from shardwright.codegen.moves.matmul.plan import plan_matmul

SIZES = ((8, 8, 8), (4, 12, 8), (7, 13, 5), (2, 1, 3))


def some_matmuls(mesh: sw.Mesh, count: int, seed: int) -> list[sw.Matmul]:
    """Matmuls of small matrices with shardings drawn from all of them."""
    rng, texts = random.Random(seed), matrix_shardings(mesh.names)
    found = []
    for lhs, rhs, out in rng.sample(list(itertools.product(texts, repeat=3)), count):
        i, j, k = rng.choice(SIZES)
        dtype = rng.choice(DTYPES)
        found.append(sw.Matmul(dtype, ((i, j), lhs), ((j, k), rhs), out, mesh=mesh))
    return found


def all_right(matmuls: list[sw.Matmul], root: Path, loop: str = "never") -> Counter[int]:
    """How many of each case; each one's module equals numpy."""
    cases = Counter[int]()
    for matmul, plan, report in verified(matmuls, root, loop):
        assert report.verdict == "ok", f"{matmul}: {report.detail}"
        cases[plan.case] += 1
    return cases


@pytest.mark.parametrize("y", sampled([2, 3], 3))
def test_matmuls_of_matrices_equal_numpy(y: int, tmp_path: Path) -> None:
    mesh = sw.Mesh({"x": 2, "y": y})
    cases = all_right(some_matmuls(mesh, 3, seed=y), tmp_path / "generated")
    assert len(cases) > 1


def test_random_matmuls_with_batch_dimensions(tmp_path: Path) -> None:
    rng = random.Random(3)
    all_right([random_matmul(rng, batch) for batch in (2, 1)], tmp_path / "generated")


@pytest.mark.parametrize("seed", swept(range(20), 20))
def test_more_random_matmuls_with_batch_dimensions(seed: int, tmp_path: Path) -> None:
    rng = random.Random(100 + seed)
    all_right([random_matmul(rng, n % 3) for n in range(10)], tmp_path / "generated")


RING = sw.Mesh({"i": 4})
SEED = {
    "basic": (
        sw.Mesh({"x": 4, "y": 2}),
        ((8, 16), "P('x', 'y')"),
        ((16, 4), "P('y')"),
        "P('x')",
    ),
    "allgather": (RING, ((8, 8), "P('i')"), ((8, 4), "P('i')"), "P('i')"),
    "psumscatter": (RING, ((8, 8), "P(None, 'i')"), ((8, 4), "P('i')"), "P('i')"),
}
"""The matmuls of JAX's tutorial on shard_map, by the names of its functions."""


@pytest.mark.parametrize(
    ("name", "loop", "wanted"),
    [
        ("basic", "never", ("", "", "all_reduce")),
        ("allgather", "one", ("", "all_gather", "")),
        ("allgather", "both", ("", "all_gather", "")),
        ("psumscatter", "never", ("", "", "reduce_scatter")),
        ("psumscatter", "both", ("", "", "reduce_scatter")),
    ],
)
def test_the_tutorials_matmuls(
    name: str, loop: str, wanted: tuple[str, ...], tmp_path: Path
) -> None:
    mesh, lhs, rhs, out = SEED[name]
    matmul = sw.Matmul("float32", lhs, rhs, out, mesh=mesh)
    ((_, plan, report),) = verified([matmul], tmp_path / "generated", loop)
    assert report.verdict == "ok", report.detail
    assert tuple(move.ops for move in plan.chosen.moves) == wanted
    assert (plan.chosen.loop is None) == (loop == "never")


@pytest.mark.slow
def test_loops_over_every_factor(tmp_path: Path) -> None:
    """Gathers along i, j, k and a batch dimension; scatters along i, k and a batch dimension."""
    mesh = sw.Mesh({"i": 4})
    shapes = ((4, 8, 16), (4, 16, 8))
    cases = [
        ("[{}, {}, {}]", "[{}, {}, {'i'}]", "[{}, {}, {}]"),
        ("[{}, {'i'}, {}]", "[{}, {}, {'i'}]", "[{}, {'i'}, {}]"),
        ("[{}, {'i'}, {}]", "[{}, {}, {'i'}]", "[{}, {}, {'i'}]"),
        ("[{}, {}, {'i'}]", "[{}, {'i'}, {}]", "[{}, {'i'}, {}]"),
        ("[{}, {}, {'i'}]", "[{}, {'i'}, {}]", "[{}, {}, {'i'}]"),
        ("[{}, {}, {'i'}]", "[{}, {'i'}, {}]", "[{'i'}, {}, {}]"),
        ("[{'i'}, {}, {}]", "[{}, {}, {}]", "[{}, {}, {}]"),
    ]
    found = Counter[tuple[str, int]]()
    matmuls = []
    for lhs, rhs, out in cases:
        lhs, rhs, out = (text.replace("'", '"') for text in (lhs, rhs, out))
        matmuls.append(sw.Matmul("bf16", (shapes[0], lhs), (shapes[1], rhs), out, mesh=mesh))
    for loop in ("one", "both"):
        able = []
        for matmul in matmuls:
            try:
                plan = plan_matmul(matmul, loop=loop, listed=0)
            except sw.InputError:
                continue
            able.append(matmul)
            assert plan.chosen.loop is not None
            found[plan.chosen.loop.side, plan.chosen.loop.factor] += 1
        all_right(able, tmp_path / loop / "generated", loop)
    assert {side for side, _ in found} >= {"out"}
    assert len(found) >= 4


def test_loops_along_axes_in_another_order_than_the_meshs(tmp_path: Path) -> None:
    """`lax.ppermute` goes by the order of the mesh, whatever that of the axes it is given."""
    mesh = sw.Mesh({"x": 2, "y": 3})
    split, rows = '[{"y", "x"}, {}]', ((12, 8), (8, 12))
    sides = [
        (split, "[{}, {}]", '[{}, {"x"}]'),
        ("[{}, {}]", '[{}, {"y", "x"}]', "[{}, {}]"),
        ('[{}, {"x", "y"}]', '[{"x", "y"}, {}]', split),
    ]
    shapes = [rows, rows, ((12, 12), (12, 8))]
    matmuls = [
        sw.Matmul("float32", (lhs_shape, lhs), (rhs_shape, rhs), out, mesh=mesh)
        for (lhs, rhs, out), (lhs_shape, rhs_shape) in zip(sides, shapes, strict=True)
    ]
    plans = [plan_matmul(matmul, loop="both", listed=0) for matmul in matmuls]
    texts = [sw.emit(plan).modules("a test")["jax_xla.py"] for plan in plans]
    assert any("rings = groups_along(6, (1, 3), (3, 2))" in text for text in texts)
    all_right(matmuls, tmp_path / "generated", "both")


def test_loops_round_cycles_of_a_torus(tmp_path: Path) -> None:
    mesh = sw.Mesh({"i": 8})
    matmuls = [
        sw.Matmul("int8", ((16, 16), "P(None, 'i')"), ((16, 16), "P('i')"), "P('i')", mesh=mesh),
    ]
    for _, plan, report in verified(matmuls, tmp_path / "generated", "both", "v5e:2x4"):
        assert plan.chosen.loop is not None
        assert plan.chosen.loop.order
        assert report.verdict == "ok", report.detail


@pytest.mark.parametrize("seed", swept(range(12), 12))
def test_random_loops(seed: int, tmp_path: Path) -> None:
    rng, sizes = random.Random(seed), (6, 12, 24)
    mesh = sw.Mesh(rng.choice([{"x": 2, "y": 3}, {"x": 2, "y": 2}, {"x": 2, "y": 3, "z": 1}]))
    texts, found = matrix_shardings(("x", "y")), list[sw.Matmul]()
    loop = ("one", "both")[seed % 2]
    while len(found) < 12:
        (i, j, k), (lhs, rhs, out) = (
            [rng.choice(each) for _ in range(3)] for each in (sizes, texts)
        )
        matmul = sw.Matmul("float32", ((i, j), lhs), ((j, k), rhs), out, mesh=mesh)
        try:
            plan_matmul(matmul, loop=loop, listed=0)
        except sw.InputError:  # nothing goes round a ring
            continue
        found.append(matmul)
    all_right(found, tmp_path / "generated", loop)


def test_collectives_for_a_processor_are_along_a_first_dimension(tmp_path: Path) -> None:
    mesh = sw.Mesh({"x": 2, "y": 3})
    given = [
        ("[{}, {'y'}]", "[{}, {}]", "[{}, {}]", 'lax.all_gather(a, "y", axis=0)'),
        ("[{}, {'x'}]", "[{'x'}, {}]", "[{}, {'x'}]", 'lax.psum(c, "x")'),
    ]
    matmuls, said = [], []
    for lhs, rhs, out, text in given:
        lhs, rhs, out = (each.replace("'", '"') for each in (lhs, rhs, out))
        matmuls.append(sw.Matmul("float32", ((4, 6), lhs), ((6, 64), rhs), out, mesh=mesh))
        said.append(text)
    reports = list(verified(matmuls, tmp_path / "generated", "auto", "cpu:6"))
    assert [report.verdict for _, _, report in reports] == ["ok"] * len(matmuls)
    for number, text in enumerate(said):
        module = tmp_path / "generated" / f"m{number}" / "jax_xla.py"
        assert text in module.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["one", "both"])
def test_rings_of_more_than_16_devices_are_rolled(loop: str, tmp_path: Path) -> None:
    """Gathers of a part of j, which products add, and of k, which they stand beside; a scatter."""
    mesh = sw.Mesh({"i": 18})
    sides = [
        ("P('i')", "P('i')", "P('i')"),
        ("P('i')", "P(None, 'i')", "P('i')"),
        ("P(None, 'i')", "P('i')", "P('i')"),
    ]
    matmuls = [
        sw.Matmul("int32", ((36, 36), lhs), ((36, 36), rhs), out, mesh=mesh)
        for lhs, rhs, out in sides
    ]
    found = []
    made = verified(matmuls, tmp_path / "generated", loop)
    for number, (_, plan, report) in enumerate(made):
        assert report.verdict == "ok", report.detail
        assert plan.chosen.loop is not None
        found.append((plan.chosen.loop.side, plan.chosen.loop.factor))
        text = (tmp_path / "generated" / f"m{number}" / "jax_xla.py").read_text()
        assert "lax.fori_loop(1, 18, turned, " in text
    assert found == [("rhs", 1), ("rhs", 2), ("out", 0)]


FAULTS = [
    ("scatter_dimension=0)", "scatter_dimension=0).T", "padded result"),
    ("jnp.moveaxis(c, 1, 0)", "jnp.moveaxis(c, 0, 0)", "result at"),
    ("13 - lax", "12 - lax", "result at"),
    ('without_padding(a, b, 13 - lax.axis_index("y") * 5)', "(a, b)", "result at"),
    ("preferred_element_type=jnp.float32)", "preferred_element_type=jnp.float32) * 2", "result"),
    ("min(lo1 + 5, 13)", "lo1 + 5", "lhs_box(2)"),
    ('LHS = \'[{"x"}, {"y"}]\'', 'LHS = \'[{"y"}, {"x"}]\'', "LHS"),
]


def test_planted_faults_are_found(tmp_path: Path) -> None:
    mesh = sw.Mesh({"x": 2, "y": 3})
    matmul = sw.Matmul(
        "float32", ((6, 13), "P('x', 'y')"), ((13, 6), "P('y')"), "P('x', 'y')", mesh=mesh
    )
    plan = plan_matmul(matmul, listed=0)
    for number, (right, wrong, said) in enumerate(FAULTS):
        case = write_module(plan, f"m{number}", tmp_path / "generated")
        text = case.module.read_text()
        assert right in text, right
        case.module.write_text(text.replace(right, wrong))
        (report,) = reports_of("jax_xla", [case])
        assert report.verdict == "failed", wrong
        assert said in report.detail


@pytest.mark.slow
def test_a_module_checks_itself(tmp_path: Path) -> None:
    mesh, lhs, rhs, out = SEED["psumscatter"]
    plan = plan_matmul(sw.Matmul("int8", lhs, rhs, out, mesh=mesh), listed=0)
    write_module(plan, "m", tmp_path / "generated")
    (tmp_path / "generated" / "m" / "__init__.py").write_text("")
    ran = subprocess.run(
        [sys.executable, "-m", "generated.m.jax_xla"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    wanted = "ok: shards tile the tensors; 512 flops done, every element of the product right\n"
    assert (ran.stdout, ran.returncode) == (wanted, 0), ran.stderr


@pytest.mark.slow
def test_a_self_check_finds_blocks_on_other_devices(tmp_path: Path) -> None:
    """Also where blocks begin at multiples of a power of two."""
    sides = (((128, 64), "P('x')"), ((64, 32), "P()"), "P('x')")
    plan = plan_matmul(sw.Matmul("bfloat16", *sides, mesh=sw.Mesh({"x": 4})), listed=0)
    module = write_module(plan, "m", tmp_path / "generated").module
    (module.parent / "__init__.py").write_text("")
    turned = 'jax.lax.ppermute(c, "x", [(n, (n + 1) % 4) for n in range(4)])'
    text = module.read_text().replace("    c = jnp.matmul", "    import jax\n    c = jnp.matmul")
    assert text.count("    return c\n") == 1
    for wrong, said in ((False, ""), (True, "wrong product\n")):
        module.write_text(
            text.replace("    return c\n", f"    return {turned}\n") if wrong else text
        )
        command = [sys.executable, "-m", "generated.m.jax_xla"]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert (ran.returncode, ran.stderr) == (int(wrong), said)
