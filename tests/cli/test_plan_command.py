"""`shardwright plan` with a topology, a memory limit, --compare and --relabel; reading HLO."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from commands import described, flags, ok, run
from strategies import exactly

import shardwright as sw
from shardwright.codegen.cli.flags import flag
from shardwright.codegen.hardware.presets import topology_of
from shardwright.codegen.moves.compare import compare, xla_plan
from shardwright.codegen.moves.xla import received
from shardwright.codegen.operations.emit.reshard import emit_described
from shardwright.codegen.spec.description import Description, describe
from shardwright.codegen.spec.hlo.received import groups

H100 = str(topology_of("h100"))


def test_a_basis_plan_is_printed() -> None:
    """Of so small a tensor all of it may be held on the way; the verdict names a backend."""
    result = run("plan", *flags(), "--strategy", "basis", "--topology", "h100")
    assert result.code == 0, result.err
    assert "strategy basis, steps: all_gather, slice" in result.out
    assert "(emitted by jax_xla; other backends take direct plans)" in result.out
    assert '[{"y"}, {"x"}]' in result.out
    noted = "6 of whose 8 devices take part"
    assert f"8.4e-06 seconds on {H100}, {noted}; at most 168 bytes per device" in result.out
    whole = run("plan", *flags(), "--strategy", "basis", "--topology", "h100:6")
    assert f"seconds on {topology_of('h100:6')}; at most 168 bytes per device" in whole.out
    (line,) = (line for line in result.out.splitlines() if line.startswith("jax_xla: "))
    assert " seconds on h100" in line
    assert line.endswith("; moves 120 bytes, 24 at least")


def test_what_a_limit_costs_is_printed() -> None:
    limited = ("--strategy", "basis", "--topology", "h100", "--memory-limit", "48")
    result = run("plan", *flags(), *limited)
    assert "strategy basis, steps: all_to_all, permute, all_to_all" in result.out
    least = "at least 8.4e-06 by any steps of the basis"  # which takes more memory
    assert f"; {least}; at most 48 bytes per device" in result.out


def test_explain() -> None:
    """The stages of every module that runs there, and each alternative."""
    result = run("plan", *flags(), "--topology", "v5e:2x4", "--explain")
    assert result.code == 0, result.err
    for words in ("pallas_tpu: ", "jax_xla: ", "round 1 of", "busiest link", "HBM"):
        assert words in result.out, words
    assert "triton_gpu: " not in result.out
    for alternative in ("direct", "basis", "XLA"):
        assert any(f" {alternative} " in line for line in result.out.splitlines()), alternative


def test_explain_says_what_collectives_take_on_rings() -> None:
    """On a torus; elsewhere there are none."""
    result = run("plan", *flags(), "--topology", "torus:2x4", "--explain")
    assert "along axes of (2, 4)" in result.out
    rows = [line.split("│")[1:3] for line in result.out.splitlines() if line.count("│") == 7]
    assert [tuple(map(str.strip, row)) for row in rows] == [
        *((op, "1") for op in ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")),
        *((op, "2") for op in ("all_gather", "reduce_scatter", "all_reduce")),
    ]
    assert "on long rings" not in run("plan", *flags(), "--topology", "h100", "--explain").out


def test_json_says_what_is_predicted() -> None:
    result = run("plan", *flags(), "--topology", "h100", "--memory-limit", "48", "--json")
    made = json.loads(result.out)
    assert made["strategy"] == "direct"
    assert made["prediction"] == {
        "topology": H100,
        "seconds": pytest.approx(8.4e-6, rel=1e-3),
        "step_seconds": [pytest.approx(8.4e-6, rel=1e-3)],
        "least_seconds": None,
        "peak_bytes": 48,
        "memory_bytes": 48,
        "why": None,
    }


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"topology": "v5e:2x2"},
            """
            error: --topology: the topology must have every device of the meshes
            got: v5e:2x2: devices 0 to 3
            expected: a topology of at least 6 devices, for device 5
            """,
        ),
        (
            {"memory_limit": "47"},
            """
            error: --memory-limit: a device cannot hold its source and target shards at once
            got: 47 bytes
            expected: at least 48: 24 before and 24 after
            """,
        ),
        (
            {"memory_limit": "much"},
            """
            error: --memory-limit: a memory limit must be a number of bytes
            got: much
            expected: an integer of at least 1
            """,
        ),
        (
            {"target_mesh": '<["x"=2, "y"=2], device_ids=[6, 7, 8, 9]>', "strategy": "basis"},
            """
            error: --strategy: the basis strategy needs the same devices before and after
            got: basis, for meshes of 6 and 4 devices that share 0
            expected: direct, which works between any two meshes
            """,
        ),
    ],
)
def test_mistakes(changes: dict[str, str], expected: str) -> None:
    result = run("plan", *flags(**changes))
    assert (result.code, result.err.rstrip("\n"), result.out) == (2, exactly(expected), "")


def test_show_draws_exchanges_only() -> None:
    result = run("show", *flags(strategy="basis"))
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(
        "error: --strategy: the strategy must be direct, whose plan is a single exchange\n"
    )


def test_the_topology_of_a_file_is_in_the_description(tmp_path: Path) -> None:
    """Its figures, so that a bundle can be made again without the file."""
    path = tmp_path / "ours.toml"
    path.write_text('topology = "switch:6"\nlatency = 2e-6\n')
    given = {flag_name.removeprefix("--").replace("-", "_"): text for flag_name, text in
             zip(*[iter(flags())] * 2, strict=True)}  # fmt: skip
    found = describe({"name": "a", **given, "topology": str(path), "memory_limit": 100})
    assert found.topology == "switch:6,bandwidth=4.5e+11,latency=2e-06"
    assert found.to_dict()["memory_limit"] == 100
    assert "--topology switch:6,bandwidth=4.5e+11,latency=2e-06 --memory-limit 100" in (
        found.command()
    )
    assert flag("memory_limit") == "--memory-limit"


def test_bundles_take_what_their_backends_execute(tmp_path: Path) -> None:
    """A tiny all-to-all is cheaper in steps; the kernels do exchanges."""
    mesh = sw.Mesh({"x": 4, "y": 4})
    reshard = sw.Reshard(
        shape=(16, 16),
        dtype="float32",
        source=mesh.sharding('[{"x", "y"}, {}]'),
        target=mesh.sharding('[{}, {"x", "y"}]'),
    )
    bundle = sw.emit(reshard, topology="switch")
    assert bundle.plan == sw.plan(reshard, topology="switch")
    assert bundle.plan.strategy == "direct"
    steps = sw.plan(reshard, topology="switch", backends=("jax_xla",))
    assert steps.strategy == "basis"
    assert sw.emit(reshard, ("jax_xla",), topology="switch").plan == steps
    assert bundle.description("a") == Description.of(reshard, "a", topology="switch")


@pytest.mark.parametrize("backends", [None, "pallas_tpu", "jax_xla", "pallas_tpu,jax_xla"])
@pytest.mark.parametrize("topology", [None, "v5e:2x4", "h100"])
def test_plan_shows_what_emit_writes(
    backends: str | None, topology: str | None, tmp_path: Path
) -> None:
    """The same flags, the same plan, byte for byte."""
    same = flags() + (["--backends", backends] if backends else [])
    same += ["--topology", topology] if topology else []
    shown = run("plan", *same, "--json")
    assert run("emit", *same, "--name", "a", "-o", str(tmp_path)).code == 0
    assert shown.out == (tmp_path / "a" / "plan.json").read_text()


CONFIG = """\
[defaults]
topology = "h100"
backends = ["jax_xla"]

[[reshard]]
name = "a"
mesh = "x=4,y=2"
shape = [16, 16]
dtype = "float32"
source = '[{"x", "y"}, {}]'
target = '[{}, {"x", "y"}]'
"""


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["a"],
        ["--strategy", "direct"],
        ["--memory-limit", "300", "--gradient", "--single-file"],
        ["a", "--topology", "v5e:2x4", "--backends", "pallas_tpu,jax_xla"],
    ],
)
def test_plan_shows_what_emit_writes_of_a_config(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its defaults say counts for both, and what flags say beside it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shardwright.toml").write_text(CONFIG)
    shown = run("plan", *words, "--json")
    assert shown.code == 0, shown.err
    assert run("emit", *words).code == 0
    assert shown.out == (tmp_path / "generated/a/plan.json").read_text()


def test_other_backends_have_lines_of_their_own() -> None:
    """Those of the plan that each would have; they say how to get it."""
    lines = run("plan", *flags(), "--topology", "v5e:2x4").out.splitlines()
    assert any(line.startswith("pallas_tpu: ") for line in lines)
    (line,) = (line for line in lines if "jax_xla: " in line)
    assert line.startswith("with --backends jax_xla, basis (all_gather, slice), jax_xla: ")


def test_a_bundle_of_a_priced_plan_is_described_with_the_prices() -> None:
    """So that what `check` emits again is the same, predictions included."""
    reshard = described()
    made = sw.plan(reshard, topology="h100", memory_limit=100)
    bundle = sw.emit(made)
    again = bundle.description("a")
    assert (again.topology, again.memory_limit) == (str(topology_of("h100")), 100)
    assert emit_described(again).files("a") == bundle.files("a")
    asked = sw.emit(sw.plan(reshard, "direct", topology="h100"))
    assert asked.strategy == "auto"


def test_relabelling_is_reported() -> None:
    result = run("plan", *flags(), "--relabel")
    lines = result.out.splitlines()
    assert lines[0] == "relabelled: 72 bytes move instead of 104, by --target-mesh"
    mesh = re.fullmatch(r"  '(.*)'", lines[1])
    assert mesh is not None
    again = json.loads(run("plan", *flags(target_mesh=mesh[1]), "--json").out)
    assert again["bytes"]["received_total"] == 72
    assert json.loads(run("plan", *flags(), "--relabel", "--json").out) == again


def test_comparison() -> None:
    """Direct reaches the bound, XLA gathers the whole of openxla/xla #15207's like on 2x3."""
    pytest.importorskip("jax")
    mesh = sw.Mesh({"x": 2, "y": 3})
    source, target = mesh.sharding('[{"x"}, {"y"}]'), mesh.sharding('[{"y"}, {"x"}]')
    rows = compare(sw.Reshard((6, 6), "float32", source, target), "h100")
    direct, basis, xla, bound = rows
    assert [row.name for row in rows] == ["direct", "basis", "XLA", "bound"]
    assert direct.received_max == bound.received_max == 24
    assert basis.received_max == 120  # all of it, in one gather
    assert xla.received_max is not None
    assert xla.received_max >= 24
    assert xla.peak is not None
    assert xla.peak >= 48
    assert xla.seconds is not None
    assert xla.seconds > bound.seconds > 0
    assert "all" in xla.steps or "permute" in xla.steps


def test_what_jax_cannot_be_asked() -> None:
    mesh = sw.Mesh({"x": 2, "y": 3})
    source, target = mesh.sharding('[{"x"}, {"y"}]'), mesh.sharding('[{"y"}, {"x"}]')
    uneven = sw.Reshard((7, 6), "float32", source, target)
    assert xla_plan(uneven) == "jax requires dimensions that divide evenly"
    other = sw.Mesh({"x": 6}, [5, 4, 3, 2, 1, 0]).sharding('[{"x"}, {}]')
    assert xla_plan(sw.Reshard((6, 6), "float32", source, other)) == (
        "jax requires one order of devices before and after"
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "%a = f32[4,6]{1,0} all-gather(%p), replica_groups={{0,1},{2,3}}, dimensions={0}",
            [48, 48, 48, 48],
        ),
        (
            "%a = f32[4,6]{1,0} all-gather(%p), replica_groups=[2,2]<=[4], dimensions={0}",
            [48, 48, 48, 48],
        ),
        (
            "%a = (f32[2]{0}, f32[2]{0}) all-to-all(%p, %q), replica_groups=[2,2]<=[2,2]T(1,0)",
            [8, 8, 8, 8],
        ),
        (
            "%a = f32[4,6]{1,0} all-gather(%p), replica_groups=mesh['a'=2,'b'=2] {'b'}, x={}",
            [48, 48, 48, 48],
        ),
        (
            "%a = bf16[8]{0} collective-permute(%p), source_target_pairs={{0,1},{1,0},{2,2}}",
            [16, 16, 0, 0],
        ),
        (
            "%a = s8[4]{0} reduce-scatter(%p), replica_groups={{0,1,2,3}}, dimensions={0}",
            [12, 12, 12, 12],
        ),
        ("%a = f64[4]{0} all-reduce(%p), replica_groups={{0,1}}, to_apply=%add", [32, 32, 0, 0]),
        (
            "%a = (f32[2]{0}, f32[4]{0}) all-gather-start(%p), replica_groups={{0,1}}",
            [8, 8, 0, 0],
        ),
        ("%a = f32[4]{0} add(%all-gather.1, %q)", [0, 0, 0, 0]),
    ],
)
def test_bytes_of_collectives_in_hlo(line: str, expected: list[int]) -> None:
    assert received(line, 4)[0] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mesh['a'=2,'b'=3] {'b'}", [[0, 1, 2], [3, 4, 5]]),
        ("mesh['a'=2,'b'=3] {'a'}", [[0, 3], [1, 4], [2, 5]]),
        ("mesh['a'=3,'b'=2], device_ids=([2,3]T(1,0)) {'b'}", [[0, 3], [1, 4], [2, 5]]),
        ("mesh['a'=2,'b'=2], device_ids=(3,2,1,0) {'a'}", [[3, 1], [2, 0]]),
        ("mesh['a'=4] {'a':(1)2}", [[0, 2], [1, 3]]),
        ("mesh['a'=4] {'a':(2)2}", [[0, 1], [2, 3]]),
        ("mesh['a'=2,'b'=2] {'a','b'}", [[0, 1, 2, 3]]),
        ("[2,2]<=[2,2]T(1,0)", [[0, 2], [1, 3]]),
        ("{{0,3},{1,2}}", [[0, 3], [1, 2]]),
    ],
)
def test_groups_of_collectives_in_hlo(text: str, expected: list[list[int]]) -> None:
    line = f"%a = f32[4]{{0}} all-gather(%p), replica_groups={text}, dimensions={{0}}"
    assert groups(line, sum(map(len, expected))) == expected


def test_groups_that_are_not_understood_are_no_number() -> None:
    with pytest.raises(ValueError, match="unknown replica_groups"):
        received("%a = f32[4]{0} all-gather(%p), replica_groups=@other, dimensions={0}", 4)


@pytest.mark.slow
def test_ids_in_order_are_not_listed_on_large_meshes() -> None:
    """Those of 65,536 devices are what the mesh says already; others are listed."""
    sides = ("--source", '[{"x"}]', "--target", "[{}]")
    words = ("--shape", "65536", "--dtype", "int8", *sides)
    for size, listed in ((512, list(range(512))), (1024, None)):
        printed = ok("plan", "--mesh", f"x={size}", *words, "--json")
        assert json.loads(printed)["source"]["device_ids"] == listed
    ids = list(range(1024, 0, -1))
    printed = ok("plan", "--mesh", f'<["x"=1024], device_ids={ids}>', *words, "--json")
    assert json.loads(printed)["source"]["device_ids"] == ids


def test_a_comparison_is_a_table() -> None:
    result = run("plan", *flags(), "--compare", "--json")
    assert result.code == 2
    assert result.err.splitlines() == [
        "error: --compare: a comparison cannot be printed as JSON",
        "got: --compare --json",
        "expected: --compare or --json",
    ]


def test_an_order_that_gains_nothing() -> None:
    words = ("--mesh", "x=4", "--shape", "8x8", "--dtype", "float32")
    sides = ("--source", '[{"x"}, {}]', "--target", '[{}, {"x"}]')
    result = run("plan", *words, *sides, "--relabel")
    assert result.out.startswith(
        "not relabelled: 192 bytes move in any order of the target's devices"
    )
