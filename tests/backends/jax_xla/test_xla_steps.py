"""Plans of several steps as XLA modules: values, bytes, derivatives, planted faults, refusals."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import running
from cases import all_pairs, describe, random_reshard
from lone import alone
from strategies import exactly, message
from style import FORMATTED, LINTED
from sums import reduction
from test_jax_xla import programs

import shardwright as sw
from shardwright.codegen.backends.jax_steps.plan import steps_of
from shardwright.codegen.backends.jax_xla import context as jax_xla
from shardwright.codegen.checks.compiled.report import TpuCode
from shardwright.codegen.moves import plan
from shardwright.codegen.operations.bundles.compile import compile_bundles
from shardwright.codegen.operations.emit.modules import parts
from shardwright.codegen.operations.verify import Case
from shardwright.ir import InputError, Mesh, Reshard
from shardwright.ir.plan import Plan

GRID, SIX = Mesh({"x": 2, "y": 4}), Mesh({"x": 2, "y": 3})
MATRICES = [
    ({"x": 2, "y": 3}, (6, 12)),
    ({"x": 2, "y": 3}, (7, 5)),
    ({"x": 2, "y": 4}, (8, 16)),
    ({"x": 2, "y": 4}, (13, 11)),
    ({"x": 2, "y": 2, "z": 2}, (9, 7)),
]
TOPOLOGIES = ("switch", "torus:2x4", "hierarchical:2x4")


def make(source: str, target: str, shape: tuple[int, ...] = (16, 8), dtype: str = "float32",
         mesh: Mesh = GRID) -> Reshard:  # fmt: skip
    return Reshard(shape, dtype, mesh.sharding(source), mesh.sharding(target))


def of_steps(reshards: list[Reshard], first: int = 0) -> list[Plan]:
    """The basis plans of reshards, priced by one topology after the other from that of a number on;
    of those that the basis can make: it moves no term to another device."""
    made = []
    for number, reshard in enumerate(reshards, first):
        meshes = reshard.source.mesh, reshard.target.mesh
        fits = max(max(mesh.device_ids) for mesh in meshes) < 8
        try:
            made.append(plan(reshard, "basis", topology=TOPOLOGIES[number % 3 if fits else 0]))
        except InputError as error:
            rules = (
                "within one set of devices",
                "the same devices",
                "no sequence",
                "their device order",
            )
            if not any(rule in error.rule for rule in rules):
                raise
    return made


def check(plans: list[Plan], folder: Path) -> None:
    if not plans:
        pytest.skip("no steps of the basis make this reshard")
    running.check("jax_xla", plans, folder)


@cache
def pairs(count: int) -> list[Reshard]:
    """So many pairs of shardings of each matrix."""
    rng = random.Random(3)
    return [r for axes, shape in MATRICES for r in rng.sample(all_pairs(axes, shape), count)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", range(len(MATRICES)))
def test_steps_of_matrices(number: int, tmp_path: Path) -> None:
    """Meshes of up to eight devices, extents that divide and that do not."""
    check(of_steps([pairs(1)[number]], number), tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", range(40 * len(MATRICES)))
def test_steps_of_more_matrices(number: int, tmp_path: Path) -> None:
    check(of_steps([pairs(40)[number]], number), tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", [*range(24), *range(200, 320)])
def test_steps_of_random_reshards(seed: int, tmp_path: Path) -> None:
    """Ranks 0 to 3, sub-axes, both splits, other axes and other orders of the same devices."""
    check(of_steps([random_reshard(seed)], seed), tmp_path)


SEED = (
    make('[{"w", "z"}, {}, {"x", "y"}]', '[{"x"}, {"y", "z"}, {}]', (4, 4, 4), "int32",
         Mesh({"x": 2, "y": 2, "z": 2, "w": 2})),
    make('[{"x"}, {"y"}]', '[{"y"}, {"x"}]', (24, 48), mesh=Mesh({"x": 2, "y": 3})),
)  # fmt: skip


def test_the_decompositions_of_the_seed(tmp_path: Path) -> None:
    """`[[3, 2], [], [0, 1]] -> [[0], [1, 2], []]` and a transposed grid."""
    check([plan(reshard, "basis") for reshard in SEED], tmp_path)


@pytest.mark.slow
def test_programs_of_steps_move_the_bytes(tmp_path: Path) -> None:
    """The HLO brings WIRE_BYTES to the busiest device, forward and backward."""
    pytest.importorskip("jax")
    reshards = [
        make('[{}, {"x"}], unreduced={"y"}', '[{"y"}, {"x"}]'),
        make('[{}, {"x"}], unreduced={"y"}', '[{"y"}, {"x"}]', (5, 6)),
        make('[{"x"}, {"y"}]', '[{"y"}, {"x"}]', (7, 9)),
        SEED[1],
    ]
    made = [plan(reshard, "basis", topology="torus:2x4") for reshard in reshards]
    for said, each in zip(programs(made, tmp_path), made, strict=True):
        name = describe(each.reshard)
        assert said["received"] == said["wire"] == steps_of(each).wire[0], name
        even = all(extent % each.devices == 0 for extent in each.reshard.shape)
        assert said["wire"] <= (1.05 if even else 2) * each.traffic.received_max, name
        assert said["backward"]["received"] == said["backward"]["wire"], name


@pytest.mark.slow
def test_derivatives(tmp_path: Path) -> None:
    """Bundles of steps and sums, floating, even and not, with their backward modules."""
    pytest.importorskip("jax")
    reshards = [r for r in map(reduction, range(7)) if r.source.unreduced][:4]
    reshards += [random_reshard(seed) for seed in (3, 8)] + [SEED[1]]
    dtypes = ("float32", "bfloat16", "float8_e5m2", "float64", "float16", "float32", "float32")
    for number, (reshard, dtype) in enumerate(zip(reshards, dtypes, strict=True)):
        bundle = sw.emit(replace(reshard, dtype=dtype), ("jax_xla",), "basis", gradient=True)
        bundle.write(tmp_path / f"bundle{number}")
    for report in running.verified(tmp_path):
        assert (report.verdict, report.detail) == ("ok", ""), report.name
        assert {"derivative", "backward"} <= set(report.checks)


ROWS_FIRST = Mesh({"x": 2, "y": 4}, [0, 2, 4, 6, 1, 3, 5, 7])
"""The chips of a v5e:2x4 along its second axis first; JAX numbers them along its first."""
BOXED = '[{"x"}, {}], unreduced={"y"}', '[{"x", "y"}, {}]'
"""Of 7 rows, shards of which do not fit into one another."""
THREE = plan(
    make('[{"x"}, {"y"}]', '[{"y"}, {}]', (16, 24), mesh=ROWS_FIRST), "basis", topology="switch"
)
FAULTS = {
    "a wrong order": ('all_gather(x, "x", axis=1', 'all_gather(x, "x", axis=0'),
    "another axis": ('all_to_all(x, "y:(2)2"', 'all_to_all(x, "x"'),
    "to itself": ("(2, 4), (3, 5), (4, 2), (5, 3)", "(2, 2), (3, 3), (4, 4), (5, 5)"),
}
SUM_FAULTS = {
    "a maximum": ("lax.psum(x,", "lax.pmax(x,"),
    "other terms": ('lax.psum(x, "y")', 'lax.psum(x, "x")'),
    "the first term": ("x = x[0]", "x = x[0] * (lax.axis_index(AXES) % 2 == 0)"),
    "twice": ("lax.psum(x,", "2 * lax.psum(x,"),
}
BOX_FAULTS = {
    "places swapped": ("= box.read, box.write", "= box.write, box.read"),
    "overwritten": ("box if reduce is None else reduce(own, box)", "box"),
    "another sum": ("yield sender, piece", "yield sender // 2 * 2, piece"),
    "padding": ("low = min(low + number_of(digits, position) * width, high)", "low += 1"),
}


def test_planted_faults(tmp_path: Path) -> None:
    """A step in a wrong order, over other axes or with other senders fails against the oracle."""
    pytest.importorskip("jax")
    cases = []
    for made, faults in (
        (THREE, FAULTS),
        (plan(make('[{}, {"x"}], unreduced={"y"}', '[{}, {"x"}]', mesh=SIX)), SUM_FAULTS),
        (plan(make(*BOXED, (7, 6), mesh=SIX)), BOX_FAULTS),
    ):
        text = alone(made, "jax_xla")
        for name, (old, new) in {f"none of {next(iter(faults))}": ("", ""), **faults}.items():
            assert old in text, name
            path = tmp_path / f"{name.replace(' ', '_')}.py"
            path.write_text(text.replace(old, new, 1) if old else text)
            cases.append(Case.of(made.reshard, name, "jax_xla", path))
    verdicts = {report.name: report.verdict for report in running.reports_of("jax_xla", cases)}
    faults = {**FAULTS, **SUM_FAULTS, **BOX_FAULTS}
    passed = {f"none of {next(iter(each))}": "ok" for each in (FAULTS, SUM_FAULTS, BOX_FAULTS)}
    assert verdicts == {**passed, **dict.fromkeys(faults, "failed")}


def exchange_of(made: Plan) -> str:
    text = alone(made, "jax_xla")
    start = text.index("def _exchange(x):")
    return text[start : text.index("_PROGRAM", start)].strip()


def test_the_statements_of_a_plan() -> None:
    """One a step, each under what it does."""
    assert exchange_of(THREE) == exactly(
        '''
        def _exchange(x):
            """Return the target shard of a device from its source shard, inside shard_map."""
            # 1. permute over "x", "y": [{"x"}, {"y"}] -> [{"y":(1)2}, {"x", "y":(2)2}]
            x = lax.ppermute(x, AXES, SENDS)
            # 2. all_to_all over "y":(2)2: [{"y":(1)2}, {"x", "y":(2)2}] -> [{"y"}, {"x"}]
            x = lax.all_to_all(x, "y:(2)2", split_axis=0, concat_axis=1, tiled=True)
            # 3. all_gather over "x": [{"y"}, {"x"}] -> [{"y"}, {}]
            y = lax.all_gather(x, "x", axis=1, tiled=True)
            return y
        '''
    ).replace("SENDS", "[(0, 0), (1, 1), (2, 4), (3, 5), (4, 2), (5, 3), (6, 6), (7, 7)]")


def test_sub_axes_that_cannot_coexist_go_by_groups(tmp_path: Path) -> None:
    """`"x":(1)2 -> "x":(1)3`: no array of the devices has both as axes."""
    made = plan(make('[{"x":(1)2}]', '[{"x":(1)3}]', (12,), "int32", Mesh({"x": 6})), "basis")
    assert "all_gather(x, AXES, axis=0, tiled=True, axis_index_groups=groups_along(6, (1, 2)))" in (
        exchange_of(made)
    )
    check([made], tmp_path)


def test_a_topology_that_picks_steps(tmp_path: Path) -> None:
    """From the choice to a module: fewer messages for a small tensor; within a limit of memory."""
    pytest.importorskip("jax")
    small = make('[{"x", "y"}, {}]', '[{}, {"x", "y"}]', (16, 16))
    bundle = sw.emit(small, backends=("jax_xla",), topology="switch", memory_limit=512)
    assert bundle.plan.strategy == "basis"
    bundle.write(tmp_path / "small")
    assert [report.verdict for report in running.verified(tmp_path)] == ["ok"]
    text = (tmp_path / "small" / "jax_xla.py").read_text()
    assert "(the limit is 512)" in text
    assert "## Steps" in (tmp_path / "small" / "README.md").read_text()


@pytest.mark.exhaustive
def test_the_tpu_compiler_takes_steps(tmp_path: Path) -> None:
    """Its collectives are those of the plan where shards are whole tiles of its memory."""
    pytest.importorskip("libtpu")
    sums = '[{}, {"x"}], unreduced={"y"}'
    plans = {
        "reduce_scatter": plan(make(sums, '[{"y"}, {"x"}]', (1024, 1024))),
        "all_reduce": plan(make(sums, '[{}, {"x"}]', (1024, 1024), mesh=Mesh({"x": 4, "y": 2}))),
        "steps": plan(make('[{"x"}, {"y"}]', '[{"y"}, {}]', (1024, 1024)), "basis"),
    }
    for name, made in plans.items():
        sw.emit(made, backends=("jax_xla",)).write(tmp_path / name)
    for report in compile_bundles([tmp_path], ["v5e:2x4"]):
        assert (report.verdict, report.detail) == ("ok", "")
        assert isinstance(report.code, TpuCode)
        assert report.code.wire_bytes == steps_of(plans[report.name]).wire[0], report.name


def test_too_many_boxes_are_refused() -> None:
    """A module goes through them when it is traced."""
    mesh = Mesh({"x": 32, "y": 32})
    reshard = make('[{"x"}, {}]', '[{"x", "y"}, {}]', (2049, 1 << 16), mesh=mesh)
    assert message(lambda: jax_xla.refuse(plan(reshard, "basis"))) == exactly(
        """
        strategy: the plan has too many boxes for jax_xla, whose trace visits each box of a step
        got: 1048576 boxes of a basis plan, including empty boxes
        expected: at most 262144, or strategy direct
        """
    )
    wide = make('[{"x"}, {}]', '[{"x"}, {"y"}]', (2**31 - 8, 1))
    assert message(lambda: jax_xla.refuse(plan(wide, "basis"))) == exactly(
        """
        shape: padded shards have indices up to 2147483640, which jax_xla cannot compute in 32 bits
        got: 2147483640x1
        expected: padded shards that end at or below 2146435071
        """
    )


def test_a_bundle_whose_plan_there_is_none_of(tmp_path: Path) -> None:
    """A listing that was edited: `verify` says what is wrong with it."""
    there = Mesh({"t": 2}, range(8, 10))
    reshard = Reshard((8,), "int8", GRID.sharding('[{"x"}]'), there.sharding('[{"t"}]'))
    sw.emit(reshard, backends=("jax_xla",)).write(tmp_path / "moved")
    manifest = tmp_path / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"strategy": "auto"', '"strategy": "basis"'))
    (report,) = running.verified(tmp_path)
    assert (report.verdict, report.detail) == (
        "failed",
        "would not be emitted now: strategy: the basis strategy needs the same devices before "
        "and after",
    )


def test_texts_are_formatted(tmp_path: Path) -> None:
    """Modules of steps, of sums, of nothing to do, among axes and boxes, with their backwards."""
    reshards = [random_reshard(seed) for seed in range(6)] + [reduction(s) for s in range(6)]
    reshards.append(make('[{"x"}, {}]', '[{"x"}, {}]'))
    for number, made in enumerate(of_steps(reshards)):
        for part in parts(made, "jax_xla", "shardwright emit", gradient=True, single_file=True):
            (tmp_path / f"case{number}_{part.file}").write_text(part.text)
    for command in (FORMATTED, LINTED):
        line = [sys.executable, "-m", *command, str(tmp_path)]
        result = subprocess.run(line, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr


FITTING = [
    # what is cut is padded first; what is gathered is cut after it; a permute moves padded shards
    ('[{}, {"x"}]', '[{"y"}, {"x"}]', (9, 7), "slice", "jnp.pad(x, ((0, 3), (0, 0)))"),
    ('[{"y"}, {}]', '[{}, {"y"}]', (9, 7), "all_to_all", "jnp.pad(x, ((0, 0), (0, 1)))"),
    ('[{"x"}, {"y"}]', '[{}, {"y"}]', (9, 8), "all_gather", "lax.slice_in_dim(x, 0, 9, axis=0)"),
    (
        '[{"x"}, {"y"}]',
        '[{"y":(1)2}, {"y":(2)2, "x"}]',
        (9, 7),
        "permute",
        "lax.ppermute(x, AXES, ",
    ),
]


@pytest.mark.parametrize(("source", "target", "shape", "op", "statement"), FITTING)
def test_shards_that_fit_padded(
    source: str, target: str, shape: tuple[int, ...], op: str, statement: str, tmp_path: Path
) -> None:
    """Extents that do not divide: one collective of padded shards all the same."""
    made = plan(make(source, target, shape), "basis", topology="switch,latency=1e-12")
    assert made.ops == op
    assert statement in exchange_of(made)
    assert "moved_by_boxes" not in exchange_of(made)
    check([made], tmp_path)


AT_ONCE = [
    ('[{"x"}, {"y"}]', "[{}, {}]", "all_gather"),
    ('[{"y"}, {}, {"x"}]', "[{}, {}, {}]", "all_gather"),
    ('[{"x"}, {}, {"y"}, {}]', '[{}, {"x"}, {}, {"y"}]', "all_to_all"),
    ('[{}, {"y"}, {"x"}, {}]', '[{"x"}, {}, {}, {"y"}]', "all_to_all"),
    ('[{}, {"y"}, {"x"}]', '[{"x", "y"}, {}, {}]', "all_to_all"),
    ('[{}, {"x"}, {"y"}]', '[{"x", "y"}, {}, {}]', "all_to_all"),
]


@pytest.mark.parametrize(("source", "target", "op"), AT_ONCE)
def test_several_dimensions_at_once(source: str, target: str, op: str, tmp_path: Path) -> None:
    """One step, and one collective in the module, whatever the number of dimensions."""
    rank = source.count("{")
    reshard = make(source, target, (8, 16, 24, 32)[:rank])
    made = plan(reshard, "basis", topology="switch,latency=1e-12")
    assert made.ops == op
    text = exchange_of(made)
    assert text.count(f"lax.{op}(") == 1
    check([made], tmp_path)
