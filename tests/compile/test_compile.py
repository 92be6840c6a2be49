"""Compiling bundles ahead of time: figures, what is saved, and what is refused."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from shardwright.codegen.backends.triton_gpu.backend import ARCHITECTURES
from shardwright.codegen.backends.triton_gpu.compile import resources
from shardwright.codegen.checks.load import load
from shardwright.codegen.checks.workers.worker import with_own
from shardwright.codegen.cli import app
from shardwright.codegen.cli import compile as command
from shardwright.codegen.hardware.chips import TOPOLOGIES
from shardwright.codegen.operations.bundles.compile import compile_bundles
from shardwright.codegen.operations.compile import CompileReport, GpuCode, Outcome, TpuCode, targets
from shardwright.codegen.operations.compile.targets import compilers
from shardwright.ir.errors import InputError

TABLES = """\
[[reshard]]
name = "aligned"
mesh = "x=2,y=2"
shape = [256, 512]
dtype = "float32"
source = '[{"x"}, {"y"}]'
target = '[{"y"}, {"x"}]'

[[reshard]]
name = "broken"
mesh = "x=4"
shape = [64, 512]
dtype = "float32"
source = '[{"x"}, {}]'
target = '[{}, {"x"}]'

[[reshard]]
name = "for_gpu_only"
mesh = "x=2"
shape = [5]
dtype = "float64"
source = '[{"x"}]'
target = '[{}]'
backends = ["triton_gpu"]

[[reshard]]
name = "nested"
mesh = "x=2,y=2"
shape = [33, 8]
dtype = "int8"
source = '[{"x", "y"}, {}]'
target = '[{}, {}]'
source_split = "nested"

[[reshard]]
name = "other_devices"
mesh = "x=2"
shape = [256, 512]
dtype = "bfloat16"
source = '[{"x"}, {}]'
target = '[{}, {"y"}]'
target_mesh = '<["y"=4], device_ids=[5, 9, 1, 3]>'

[[reshard]]
name = "uneven"
mesh = "x=4"
shape = [37, 500]
dtype = "bfloat16"
source = '[{"x"}, {}]'
target = '[{}, {"x"}]'
"""
COMPILED = ("aligned", "nested", "other_devices", "uneven")
TARGETS = ("v5e:2x4", "sm_90", "gfx942")

# Kernels that only the compilers find wrong.
UNALIGNED = """
_right = _PROGRAM.kernel


def _unaligned(order, x, y, *semaphores):
    _right(order, x, y, *semaphores)
    pltpu.sync_copy(x.at[pl.ds(1, 8)], x.at[pl.ds(8, 8)])


_PROGRAM.kernel = _unaligned


"""
UNKNOWN_NAME = """
@triton.jit
def pull_kernel(peers, out, receiver, BLOCK: tl.constexpr):
    tl.store(out, missing)


_HOST.kernel = pull_kernel


"""
END = 'if __name__ == "__main__":\n    print'


def emitted(folder: Path) -> Path:
    """Bundles of TABLES, of which one has been broken."""
    (folder / "reshards.toml").write_text(TABLES)
    root = folder / "generated"
    result = CliRunner().invoke(app, ["emit", str(folder / "reshards.toml"), "-o", str(root)])
    assert result.exit_code == 0, result.output
    for backend, planted in (("pallas_tpu", UNALIGNED), ("triton_gpu", UNKNOWN_NAME)):
        path = root / "broken" / f"{backend}.py"
        text = path.read_text()
        assert text.count(END) == 1
        path.write_text(text.replace(END, planted.lstrip() + END))
    return root


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return emitted(tmp_path_factory.mktemp("bundles"))


def skip_without(names: tuple[str, ...]) -> None:
    """Skip, saying what is missing, where a compiler is not installed."""
    try:
        targets.require(targets.parse_targets(names), saving=True)
    except InputError as error:
        pytest.skip(" ".join(str(error).split()))


@pytest.fixture(scope="module")
def done(root: Path, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """All bundles compiled for TARGETS: reports by name and target, and the folder of files."""
    skip_without(TARGETS)
    saved = tmp_path_factory.mktemp("saved")
    seen: list[tuple[int, int, CompileReport | None]] = []
    reports = compile_bundles(
        root, TARGETS, save=saved, progress=lambda *call: seen.append(call), time_limit=120
    )
    return SimpleNamespace(
        reports=reports, by={(r.name, r.target): r for r in reports}, saved=saved, seen=seen
    )


def test_a_report_for_each_bundle_and_target(done: SimpleNamespace) -> None:
    names = ("aligned", "broken", "for_gpu_only", *COMPILED[1:])
    assert [(r.name, r.target) for r in done.reports] == [(n, t) for n in names for t in TARGETS]
    assert done.seen[0] == (1, 18, None)
    assert [count for count, _, _ in done.seen[1:]] == [*range(2, 19)]
    assert {report for _, _, report in done.seen[1:]} < set(done.reports)


@pytest.mark.parametrize("name", COMPILED)
def test_figures_for_a_tpu(done: SimpleNamespace, name: str) -> None:
    report = done.by[name, "v5e:2x4"]
    assert (report.verdict, report.backend) == ("ok", "pallas_tpu"), report.detail
    assert isinstance(report.code, TpuCode)
    assert report.code.code_bytes > 10_000
    assert min(report.code.lower_seconds, report.code.compile_seconds) > 0
    assert report.code.temporary_bytes >= 0


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
@pytest.mark.parametrize("name", [*COMPILED, "for_gpu_only"])
def test_figures_for_a_gpu(done: SimpleNamespace, name: str, target: str) -> None:
    report = done.by[name, target]
    assert (report.verdict, report.detail, report.backend) == ("ok", "", "triton_gpu")
    assert report.xla is None
    code = report.code
    assert isinstance(code, GpuCode)
    assert code.registers is not None
    assert 0 < code.registers <= 255
    assert code.stack_bytes == 0
    aligned = name in ("aligned", "other_devices")
    # The first load is that of the peer's address.
    assert (code.wide_loads == code.loads - 1 > 0) == aligned
    assert (code.wide_stores == code.stores > 0) == aligned
    assert code.looped_divisions == 0
    binary = done.saved / name / f"{target}.{'cubin' if target == 'sm_90' else 'hsaco'}"
    assert binary.stat().st_size == code.binary_bytes


def test_xla_beside_it(done: SimpleNamespace) -> None:
    beside = {name: done.by[name, "v5e:2x4"].xla for name in (*COMPILED, "broken")}
    for name in ("aligned", "uneven", "broken"):
        assert isinstance(beside[name].code, TpuCode), beside[name].error
    assert beside["nested"].error == "XLA has no nested split"
    assert beside["other_devices"].error.startswith(
        "Received incompatible devices for jitted computation."
    )
    assert len(beside["other_devices"].error) <= 200


def test_what_a_bundle_lacks_is_skipped(done: SimpleNamespace) -> None:
    report = done.by["for_gpu_only", "v5e:2x4"]
    assert (report.verdict, report.detail) == ("skipped", "the bundle has no pallas_tpu.py")
    assert (report.code, report.xla) == (None, None)


@pytest.mark.slow
def test_a_mesh_larger_than_the_topology(root: Path) -> None:
    skip_without(("v5e:2x2",))
    fits, report = compile_bundles([root / "aligned", root / "other_devices"], ["v5e:2x2"])
    assert (report.verdict, report.code) == ("failed", None)
    assert report.detail == (
        "the mesh is larger than the topology; got: 5 devices; expected: at most the 4 of v5e:2x2"
    )
    assert fits.verdict == "ok"


def test_what_a_compiler_says_is_wrong(done: SimpleNamespace) -> None:
    report = done.by["broken", "v5e:2x4"]
    assert report.verdict == "failed"
    assert report.detail.startswith("Offsets along tiled dimensions must be aligned to tiles.")
    report = done.by["broken", "sm_90"]
    assert report.verdict == "failed"
    assert report.detail == "NameError('missing is not defined'), at 2:18 of the kernel"
    assert not (done.saved / "broken").exists()


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_a_saved_kernel_says_how_it_is_launched(done: SimpleNamespace, target: str) -> None:
    folder = done.saved / "uneven"
    about = json.loads((folder / f"{target}.json").read_text())
    assembly = (folder / f"{target}.{'ptx' if target == 'sm_90' else 'amdgcn'}").read_text()
    if target == "sm_90":
        assert f".entry {about['entry']}(" in assembly
        assert f".reqntid {about['threads']}\n" in assembly
        assert assembly.count(f".param .u64 .ptr .global .align 1 {about['entry']}_param") == 4
        assert assembly.count(f".param .u32 {about['entry']}_param") == 1
    else:
        assert f".amdhsa_kernel {about['entry']}\n" in assembly
        assert about["threads"] == 64 * about["warps"]
    kinds = [argument["type"] for argument in about["arguments"]]
    assert kinds == ["*i64", "*i16", "i32", "*i8", "*i8"]
    assert about["arguments"][0]["value"] == (
        "device address, a multiple of 16: the address of each source shard, "
        "also a multiple of 16, as int64, by source position"
    )


@pytest.mark.parametrize("name", [*COMPILED, "for_gpu_only"])
def test_saved_launches_are_those_of_the_module(
    root: Path, done: SimpleNamespace, name: str
) -> None:
    import torch

    module: Any = load(root / name / "triton_gpu.py")
    about = json.loads((done.saved / name / "sm_90.json").read_text())
    launched = []

    class Kernel:
        arg_names = module._HOST.kernel.arg_names

        def __getitem__(self, grid: tuple[int]) -> Any:
            return lambda *args: launched.append((grid, args[2:]))

    module._HOST.kernel = Kernel()
    shape, dtype = module.source_shape, getattr(torch, module.DTYPE)
    module.reshard_local([torch.empty(shape(i), dtype=dtype) for i in sorted(module.SOURCE_IDS)])
    block = tuple(about["constants"]["BLOCK"].values())
    assert launched == [
        (
            (math.prod(launch["grid"]),),
            (*(launch[name] for name in ("receiver", "me") if name in launch), block),
        )
        for launch in about["launches"]
    ]
    assert [launch["device"] for launch in about["launches"]] == sorted(module.TARGET_IDS)


LOADED = """
import json, sys
from pathlib import Path
import jax, numpy
from jax import export
from jax.experimental import topologies
from jax.sharding import Mesh
for stem in sys.argv[1:]:
    about = json.loads(Path(stem + ".json").read_text())
    program = export.deserialize(bytearray(Path(stem + ".jax_export").read_bytes()))
    devices = topologies.get_topology_desc(
        platform="tpu", topology_name=about["topology"]
    ).devices
    placed = numpy.array([devices[number] for number in about["mesh_devices"]])
    mesh = Mesh(placed.reshape(list(about["mesh"].values())), tuple(about["mesh"]))
    (sharding,) = program.in_shardings_jax(mesh)
    assert program.in_avals[0].shape == tuple(about["argument"]["shape"])
    x = jax.ShapeDtypeStruct(about["argument"]["shape"], about["argument"]["dtype"],
                             sharding=sharding)
    code = jax.jit(program.call).lower(x).compile().memory_analysis()
    assert jax.eval_shape(program.call, x).shape == tuple(about["result"]["shape"])
    print(code.generated_code_size_in_bytes)
"""


def test_a_saved_program_loads_and_compiles_again(done: SimpleNamespace, tmp_path: Path) -> None:
    names = ("aligned", "other_devices")
    stems = [str(done.saved / name / "v5e_2x4") for name in names]
    result = subprocess.run(
        [sys.executable, "-c", LOADED, *stems],
        env=with_own(compilers()["pallas_tpu"].environment(tmp_path)),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    sizes = [done.by[name, "v5e:2x4"].code.code_bytes for name in names]
    assert list(map(int, result.stdout.split())) == sizes


def test_a_module_that_ends_the_process_fails_alone(tmp_path: Path) -> None:
    skip_without(("sm_90",))
    root = emitted(tmp_path)
    path = root / "nested" / "triton_gpu.py"
    path.write_text(path.read_text().replace("import triton\n", "os.abort()\n", 1))
    reports = compile_bundles([root / "nested", root / "uneven"], ["sm_90"], time_limit=60)
    assert [report.verdict for report in reports] == ["failed", "ok"]
    assert reports[0].detail.startswith("the compiler's process ended with SIGABRT")


def test_a_module_that_hangs_fails(tmp_path: Path) -> None:
    skip_without(("sm_90",))
    root = emitted(tmp_path)
    path = root / "nested" / "triton_gpu.py"
    path.write_text(path.read_text().replace("import triton\n", "while True: pass\n", 1))
    (report,) = compile_bundles(root / "nested", ["sm_90"], time_limit=5)
    assert (report.verdict, report.detail) == ("failed", "no result after 5 s")


def run(*words: str | Path) -> SimpleNamespace:
    """Run `shardwright compile`."""
    result = CliRunner().invoke(app, ["compile", *map(str, words)])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return SimpleNamespace(code=result.exit_code, out=result.stdout, err=result.stderr)


@pytest.mark.slow
def test_the_command(root: Path) -> None:
    skip_without(("sm_90", "gfx942"))
    result = run(root / "uneven", "--for", "sm_90", "--for", "gfx942", "--for", "sm_90")
    assert result.code == 0
    rows = [line.replace("│", " ").split() for line in result.out.splitlines()]
    assert [row[:3] for row in rows if row[:1] == ["uneven"]] == [
        ["uneven", "sm_90", "ok"],
        ["uneven", "gfx942", "ok"],
    ]
    result = run(root / "broken", "--for", "sm_90")
    assert result.code == 1
    assert result.out.splitlines()[-1] == (
        "broken for sm_90: NameError('missing is not defined'), at 2:18 of the kernel"
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "v5e:3x3",
            f"no such TPU topology\ngot: v5e:3x3\nexpected: one of {', '.join(TOPOLOGIES)}",
        ),
        (
            "sm_91",
            "no such GPU architecture\ngot: sm_91\n"
            "expected: one of sm_80, sm_90, sm_100, gfx942, gfx950",
        ),
        (
            "h101",
            "no such TPU topology or GPU architecture\ngot: h101\n"
            f"expected: one of {', '.join((*TOPOLOGIES, *ARCHITECTURES))}",
        ),
    ],
)
def test_an_unknown_target(root: Path, name: str, said: str) -> None:
    result = run(root, "--for", "sm_90", "--for", name)
    assert (result.code, result.out, result.err) == (2, "", f"error: --for: {said}\n")


def test_gpus_by_their_names() -> None:
    """As topologies call them, each architecture once."""
    names = ("h100", "h100:2x8", "H200", "sm_90", "a100", "mi300x")
    assert [each.name for each in targets.parse_targets(names)] == ["sm_90", "sm_80", "gfx942"]


def test_tables_fit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """80 columns, and more is said at 120."""
    tpu, gpu = TpuCode(1.0, 2.0, 12345678, 123456, 1 << 20, 99999), GpuCode(1.0, *range(10, 20))
    reports = (
        CompileReport("layer_weights", "v5e:2x4", "pallas_tpu", "ok", code=tpu,
                      xla=Outcome(tpu), bound_bytes=100),
        CompileReport("layer_weights", "gfx942", "triton_gpu", "failed", code=gpu),
    )  # fmt: skip
    said = {}
    for columns in (80, 120):
        monkeypatch.setenv("COLUMNS", str(columns))
        command._print(reports)
        said[columns] = capsys.readouterr().out.splitlines()
        assert max(map(len, said[columns])) <= columns
    assert sum(line.count("┳") for line in said[80]) < sum(line.count("┳") for line in said[120])


def test_no_target(root: Path) -> None:
    with pytest.raises(InputError) as caught:
        compile_bundles(root, [])
    assert str(caught.value) == (
        "targets: at least one target is needed\n"
        "expected: a TPU topology such as v5e:2x4, or a GPU architecture such as sm_90"
    )


def test_a_compiler_that_is_not_installed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "find_spec", lambda name: None if name == "libtpu" else name)
    result = run(root, "--for", "v5e:2x4", "--for", "sm_90", "--for", "v6e:2x2")
    assert (result.code, result.out, result.err) == (
        2,
        "",
        "error: --for: libtpu is not installed\ngot: v5e:2x4, v6e:2x2\n"
        "expected: pip install -e '.[tpu]' in the checkout of shardwright\n",
    )
    monkeypatch.setattr(targets, "find_spec", lambda name: None)
    result = run(root, "--for", "sm_90")
    assert result.err == (
        "error: --for: triton and torch are not installed\ngot: sm_90\n"
        "expected: pip install -e '.[gpu]' in the checkout of shardwright\n"
    )


def test_nothing_to_compile(root: Path) -> None:
    skip_without(("v5e:2x4",))
    result = run(root / "for_gpu_only", "--for", "v5e:2x4")
    assert (result.code, result.out, result.err) == (
        2,
        "",
        "error: nothing was compiled\ngot: for_gpu_only: the bundle has no pallas_tpu.py\n"
        "expected: at least one module for one of the targets\n",
    )


def test_folders_that_cannot_take_what_is_saved(root: Path, tmp_path: Path) -> None:
    skip_without(("sm_90",))
    file = tmp_path / "file"
    file.write_text("")
    result = run(root / "uneven", "--for", "sm_90", "--save", file)
    assert (result.code, result.err) == (
        2,
        f"error: --save: cannot be written: File exists\ngot: {file}\n"
        "expected: a folder that can be created and written\n",
    )
    other = emitted(tmp_path)
    result = run(root / "uneven", other / "uneven", "--for", "sm_90", "--save", tmp_path / "saved")
    assert result.err.startswith(
        "error: --save: two bundles with the same name cannot be saved in one folder\n"
        "got: uneven of "
    )
    assert not (tmp_path / "saved").exists()


@pytest.mark.parametrize(
    ("assembly", "loads", "stores"),
    [
        ("ld.global.v4.b32 { }\n@%p1 ld.global.b16 { }\nst.global.v4.b32 [x]", (16, 2), (16,)),
        ("ld.global.L1::evict_last.v2.b64 { }\nld.global.nc.v2.b32 { }\nld.param.b64", (16, 8), ()),
        ("ld.global.v8.b32 { }\nld.shared.v4.b32 { }\n@%p1 st.global.b8 [x]", (32,), (1,)),
        ('.amdgcn_target "x"\nglobal_load_dwordx4 v[2:5]\nbuffer_load_ushort v0\n', (16, 2), ()),
        ('.amdgcn_target "x"\nglobal_store_dwordx4 v0\ns_load_dwordx4 s[0:3]\n', (), (16,)),
        ('.amdgcn_target "x"\nglobal_store_short_d16_hi v0\nflat_store_b64 v0\n', (), (2, 8)),
    ],
)
def test_loads_and_stores_are_counted(
    assembly: str, loads: tuple[int, ...], stores: tuple[int, ...]
) -> None:
    assert resources.widths(assembly, "ld") == loads
    assert resources.widths(assembly, "st") == stores
    assert resources.wide(loads) == (sum(size >= 16 for size in loads), len(loads))


@pytest.mark.parametrize(
    ("assembly", "divisions"),
    [
        ("div.s32 %r1, %r2, %r3;\n$L__BB0_1:\nrem.u32 %r1, %r2, %r3;\n@%p1 bra $L__BB0_1;", (1, 2)),
        ("$L__BB0_1:\nadd.s32 %r1;\n@%p1 bra $L__BB0_2;\ndiv.u64 %r1;\n$L__BB0_2:\n", (0, 1)),
        ("div.full.f32 %f1, %f2, %f3;", (0, 0)),
        (".LBB0_1:\n\tv_rcp_iflag_f32_e32 v1, v1\n\ts_cbranch_scc1 .LBB0_1\n", (1, 1)),
    ],
)
def test_divisions_are_counted(assembly: str, divisions: tuple[int, int]) -> None:
    assert resources.divisions(assembly) == divisions
