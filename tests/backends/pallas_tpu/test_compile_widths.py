"""The TPU compiler with 64-bit types in JAX and without: every form, on one mesh and on two."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from cases import describe, random_reshard, random_sharding
from lone import alone, alone_in_form
from sums import SHARED_ON_TPU, in_two

import shardwright as sw
from shardwright.codegen.backends.pallas_tpu.context import UNSUPPORTED
from shardwright.codegen.backends.pallas_tpu.strategy import candidates, grid_of
from shardwright.codegen.backends.pallas_tpu.terms import moved
from shardwright.codegen.checks.compiled.job import Job, What
from shardwright.codegen.moves import plan
from shardwright.codegen.operations.bundles.compile import compile_bundles
from shardwright.codegen.operations.compile import targets
from shardwright.codegen.operations.compile.pool import outcomes
from shardwright.ir import InputError, Mesh, Reshard
from shardwright.ir.dtypes import DTYPES
from shardwright.ir.plan import Plan

TOPOLOGY = "v5e:4x4"  # has the devices of two meshes of eight
FOUR = Mesh({"x": 4})
# A table of ids, and closed forms of ids that are consecutive.
OTHERS = (Mesh({"x": 4}, [2, 0, 3, 1]), Mesh({"x": 4}, [3, 4, 5, 6]))
OF_ANY = [dtype for dtype in DTYPES if dtype not in UNSUPPORTED]
ROWS, COLUMNS = '[{"x"}, {}]', '[{}, {"x"}]'


def skip_without_the_compiler() -> None:
    try:
        targets.require(targets.parse_targets([TOPOLOGY]), saving=False)
    except InputError as error:
        pytest.skip(" ".join(str(error).split()))


def between(
    target: Mesh, dtype: str, shape: tuple[int, int] = (64, 512), source: str = ROWS
) -> Reshard:
    return Reshard(shape, dtype, FOUR.sharding(source), target.sharding(COLUMNS))


def texts(made: Plan) -> Iterator[tuple[str, str]]:
    """The name and the text of a plan's module in every form that it may have."""
    exchange, itemsize = moved(made), DTYPES[made.reshard.dtype]
    for number, choice in enumerate(candidates(exchange, itemsize, grid_of(made))):
        yield f"{choice.form.name}{number}", alone_in_form(made, choice)


def check_compile(plans: list[Plan], folder: Path) -> set[str]:
    """Compile every form of every plan in both widths; the forms that there were."""
    skip_without_the_compiler()
    jobs, said, forms = [], [], set()
    for number, made in enumerate(plans):
        for form, text in texts(made):
            path = folder / f"{number}_{form}.py"
            path.write_text(text)
            forms.add(form.rstrip("0123456789"))
            wide = DTYPES[made.reshard.dtype] == 8
            asked: tuple[What, ...] = ("x64",) if wide else ("module", "x64")
            for what in asked:
                jobs.append(Job(what, "pallas_tpu", "pallas_tpu", str(path), TOPOLOGY))
                said.append(f"{form} {what} {describe(made.reshard)}")
    done = zip(said, outcomes(jobs, 120), strict=True)
    failed = [f"{each}: {outcome.error}" for each, outcome in done if outcome.error]
    assert not failed, "\n".join(failed)
    return forms


@pytest.mark.slow
def test_one_module_of_each_form_compiles(tmp_path: Path) -> None:
    """In one of both widths, by turns; of sums in one exchange, in two, and round rings."""
    skip_without_the_compiler()
    found: dict[str, str] = {}
    gather = between(FOUR, "float32", (64, 512), ROWS)
    whole = Reshard((64, 512), "float32", gather.source, FOUR.sharding("[{}, {}]"))
    v5e = (plan(each, "direct", topology="v5e:2x2") for each in (gather, whole))
    uneven = plan(between(OTHERS[1], "int64", (5, 31), "[{}, {}]"))
    aligned, unaligned = plan(between(FOUR, "float32")), plan(between(FOUR, "bfloat16", (37, 300)))
    for made in (aligned, unaligned, *v5e, uneven):
        for form, text in texts(made):
            found.setdefault(form.rstrip("0123456789"), text)
    every = {"direct", "windows", "slots", "routed", "relayed", "gathered", "spread"}
    assert found.keys() == every
    found["sum"] = alone(summed("int64", (5, 30)), "pallas_tpu")
    found["two exchanges"] = alone(in_two(SHARED_ON_TPU["unaligned"]), "pallas_tpu")
    source = Mesh({"x": 8}).sharding('[{}, {}], unreduced={"x"}')
    ring = Reshard((512, 512), "float32", source, Mesh({"x": 8}).sharding('[{"x"}, {}]'))
    made = plan(ring, "direct", topology="torus:8,wrap=1,bandwidth=1e6,latency=1e-12")
    found["ring"] = alone(made, "pallas_tpu")
    assert " = Ring(" in found["ring"]
    jobs = []
    for number, (name, text) in enumerate(found.items()):
        path = tmp_path / f"{name.replace(' ', '_')}.py"
        path.write_text(text)
        wide = number % 2 or 'DTYPE = "int64"' in text
        what: What = "x64" if wide else "module"
        jobs.append(Job(what, "pallas_tpu", "pallas_tpu", str(path), TOPOLOGY))
    said = {name: each.error for name, each in zip(found, outcomes(jobs, 120), strict=True)}
    assert said == dict.fromkeys(found, "")


@pytest.mark.exhaustive
def test_every_form_compiles_in_both_widths(tmp_path: Path) -> None:
    reshards = [
        between(FOUR, "float32"),
        between(OTHERS[0], "bfloat16"),
        between(OTHERS[1], "int64", (5, 31), "[{}, {}]"),
        between(FOUR, "int64", (1, 5)),
    ]
    plans = [*map(plan, reshards), plan(between(OTHERS[0], "int8"), "direct", topology="v5e:2x2")]
    plans += [turned("float32", (64, 512))]
    assert check_compile(plans, tmp_path) == {
        *("direct", "windows", "slots", "routed", "relayed", "spread"),
    }


def turned(dtype: str, shape: tuple[int, int]) -> Plan:
    """A plan in which two of four devices send, in halves, over a corner."""
    mesh = Mesh({"x": 2, "y": 2})
    sides = mesh.sharding('[{"x"}, {"y"}]'), mesh.sharding('[{"y"}, {"x"}]')
    return plan(Reshard(shape, dtype, *sides), "direct", topology="v5e:2x2")


def summed(dtype: str, shape: tuple[int, int], operator: str = "") -> Plan:
    """The plan of terms that are reduced to shards."""
    mesh = Mesh({"x": 2, "y": 2})
    source = mesh.sharding(f'[{{"x"}}, {{}}], unreduced={operator}{{"y"}}')
    reshard = Reshard(shape, dtype, source, mesh.sharding('[{"x"}, {"y"}]'))
    return plan(reshard, "direct", in_two=False)


@pytest.mark.exhaustive
def test_sums_compile_in_both_widths(tmp_path: Path) -> None:
    plans = [summed("bfloat16", (16, 512)), summed("int64", (5, 30)), summed("bool", (4, 6), "max")]
    assert {"direct", "windows", "slots"} <= check_compile(plans, tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", OF_ANY)
def test_sums_of_every_dtype_compile_in_both_widths(dtype: str, tmp_path: Path) -> None:
    operators = ["max", "min"] if dtype == "bool" else ["", "max", "min"]
    plans = [
        summed(dtype, shape, operator) for operator in operators for shape in ((16, 512), (37, 300))
    ]
    check_compile(plans, tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", OF_ANY)
def test_every_dtype_compiles_in_both_widths(dtype: str, tmp_path: Path) -> None:
    plans = [
        plan(between(target, dtype, shape), strategy="direct", topology=topology)
        for target in (FOUR, *OTHERS)
        for shape in ((64, 512), (37, 300))
        for topology in ((None,) if target is OTHERS[1] else (None, "v5e:2x2"))
    ]
    check_compile(plans, tmp_path)


NARROW = [dtype for dtype, size in DTYPES.items() if size <= 2 and dtype not in UNSUPPORTED]


def flat(rng: random.Random) -> Plan:
    """The plan of a flat tensor of 8 or 16 bits on all devices of a topology, which forward it."""
    axes = ('{"x", "y"}', '{"y", "x"}', '{"x"}', '{"y"}')
    source, target = (Mesh({"x": 4, "y": 4}).sharding(f"[{dim}]") for dim in rng.sample(axes, 2))
    size = 16 * rng.choice((100, 512, 1024, 8192))
    reshard = Reshard((size,), rng.choice(NARROW), source, target)
    return plan(reshard, "direct", topology=TOPOLOGY)


def unsplit(rng: random.Random) -> Plan:
    """The plan of a tensor that no axis splits along dimension 0, whose extent all tiles have."""
    dims = ("{}", '{"x"}', '{"y"}', '{"x", "y"}', '{"y", "x"}')
    mesh = Mesh({"x": 2, "y": 3})
    source, target = (mesh.sharding(f"[{{}}, {dim}]") for dim in rng.sample(dims, 2))
    shape = rng.randint(1, 60), rng.randint(100, 400)
    return plan(Reshard(shape, rng.choice((*NARROW, "float32")), source, target), "direct")


def plain_on_six(rng: random.Random, path: Path) -> Job:
    """A module in plain JAX on six of a topology's eight devices."""
    mesh, shape = Mesh({"x": 2, "y": 3}), (rng.randint(6, 60), rng.randint(6, 400))
    source, target = (random_sharding(rng, mesh, 2) for _ in range(2))
    path.write_text(alone(plan(Reshard(shape, rng.choice(NARROW), source, target)), "jax_xla"))
    return Job(rng.choice(("module", "x64")), "pallas_tpu", "jax_xla", str(path), "v5e:2x4")


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(40))
def test_random_reshards_compile_in_both_widths(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    check_compile([plan(random_reshard(seed)), flat(rng), unsplit(rng)], tmp_path)
    (outcome,) = outcomes([plain_on_six(rng, tmp_path / "plain.py")], 120)
    assert not outcome.error


@pytest.mark.slow
def test_a_module_that_compiles_in_one_width_only_fails(tmp_path: Path) -> None:
    skip_without_the_compiler()
    sw.emit(between(OTHERS[0], "bfloat16"), ("pallas_tpu",), single_file=True).write(tmp_path / "a")
    path = tmp_path / "a" / "pallas_tpu.py"
    text = path.read_text()
    call = "        moved = self.moved\n"
    assert text.count(call) == 1
    planted = "        assert not jax.config.jax_enable_x64, 'no room for 64 bits'\n"
    path.write_text(text.replace(call, f"{call}{planted}"))
    (report,) = compile_bundles(tmp_path / "a", (TOPOLOGY,), xla=False)
    assert (report.verdict, report.detail) == (
        "failed",
        "with jax_enable_x64: no room for 64 bits",
    )
    assert report.code is not None
    assert dataclasses.asdict(report.code)["code_bytes"] > 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["kept", "aligned", "unaligned"])
def test_sums_in_two_exchanges_compile_in_both_widths(name: str, tmp_path: Path) -> None:
    skip_without_the_compiler()
    path, widths = tmp_path / f"{name}.py", list[What](["module", "x64"])
    path.write_text(alone(in_two(SHARED_ON_TPU[name]), "pallas_tpu"))
    jobs = [Job(what, "pallas_tpu", "pallas_tpu", str(path), TOPOLOGY) for what in widths]
    assert [outcome.error for outcome in outcomes(jobs, 120)] == ["", ""]
