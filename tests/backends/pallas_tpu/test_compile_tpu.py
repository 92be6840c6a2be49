"""A chosen twelve through the TPU compiler, three in every run, and what only it can confirm."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

import shardwright as sw
from shardwright.codegen.backends.pallas_tpu.memory import FLAT_UNIT, default_view, tile_rows
from shardwright.codegen.checks.compiled import memory
from shardwright.codegen.checks.workers.worker import with_own
from shardwright.codegen.cli.compile import _tpu
from shardwright.codegen.cli.tables import LOG_WIDTH
from shardwright.codegen.hardware.chips import CHIPS, GIB, torus_of
from shardwright.codegen.operations.bundles.compile import compile_bundles
from shardwright.codegen.operations.compile import CompileReport, Outcome, TpuCode, targets
from shardwright.codegen.operations.compile.targets import compilers
from shardwright.ir.dtypes import DTYPES
from shardwright.ir.errors import InputError

KIB = 1024
LARGEST = 640 * KIB  # bytes of code, whatever the reshard
LARGEST_ALIGNED = 192 * KIB  # where tiles go by DMA from shard to shard


@dataclass(frozen=True)
class Case:
    """A reshard as a user writes it; `aligned`: tiles lie on the tiling of TPU memory."""

    mesh: str
    shape: tuple[int, ...]
    dtype: str
    source: str
    target: str
    target_mesh: str | None = None
    aligned: bool = False

    def reshard(self) -> sw.Reshard:
        mesh = sw.Mesh.parse(self.mesh)
        other = mesh if self.target_mesh is None else sw.Mesh.parse(self.target_mesh)
        source, target = mesh.sharding(self.source), other.sharding(self.target)
        return sw.Reshard(shape=self.shape, dtype=self.dtype, source=source, target=target)


TWO_FOUR = '<["x"=2, "y"=4]>'
EIGHT = '<["x"=8]>'
CASES = {
    "transpose": Case(
        TWO_FOUR, (512, 2048), "float32", '[{"x"}, {"y"}]', '[{"y"}, {"x"}]', aligned=True
    ),
    "heads": Case(
        EIGHT, (4096, 64, 128), "bfloat16", '[{"x"}, {}, {}]', '[{}, {"x"}, {}]', aligned=True
    ),
    "replicas": Case(
        TWO_FOUR, (2048, 1024), "int8", '[{"x"}, {}]', '[{}, {"y", "x"}]', aligned=True
    ),
    "primes": Case(TWO_FOUR, (1009, 2003), "float32", '[{"x"}, {"y"}]', '[{"y"}, {"x"}]'),
    "three_uneven": Case(
        TWO_FOUR, (37, 300, 515), "bfloat16", '[{"x"}, {"y"}, {}]', '[{}, {}, {"y"}]'
    ),
    "bytes": Case(EIGHT, (777, 1234), "int8", '[{"x"}, {}]', '[{}, {"x"}]'),
    "bits": Case(
        TWO_FOUR, (5, 6, 70, 90), "bool", '[{}, {"x"}, {"y"}, {}]', '[{"x"}, {}, {}, {"y"}]'
    ),
    "row": Case(TWO_FOUR, (99991,), "int64", '[{"x", "y"}]', '[{"y"}]'),
    "thin": Case(EIGHT, (100_003, 3), "float32", '[{"x"}, {}]', '[{}, {"x"}]'),
    "sub_axes": Case(
        EIGHT, (1000, 1500), "bfloat16", '[{"x":(1)2}, {"x":(2)4}]', '[{"x":(4)2}, {"x":(1)4}]'
    ),
    "permuted": Case(
        '<["x"=2, "y"=4], device_ids=[3, 0, 6, 1, 7, 2, 5, 4]>',
        (640, 900),
        "int16",
        '[{"y"}, {"x"}]',
        '[{}, {"x", "y"}]',
    ),
    "other_devices": Case(
        '<["x"=3]>',
        (250, 400),
        "float32",
        '[{"x"}, {}]',
        '[{}, {"y"}]',
        '<["y"=4], device_ids=[7, 2, 0, 5]>',
    ),
}
NEWER = ("transpose", "primes", "row", "thin")  # also for v6e
ASKED = (*((name, "v5e:2x4") for name in CASES), *((name, "v6e:2x4") for name in NEWER))
QUICKLY = ("transpose", "v5e:2x4"), ("primes", "v5e:2x4"), ("thin", "v5e:2x4")
"""One of each form; the long sweep compiles two more, `make exhaustive` all."""
SWEPT = ("row", "v5e:2x4"), ("primes", "v6e:2x4")

Asked = tuple[str, str]
"""The name of a case, and a topology."""


@pytest.fixture(scope="module")
def compiled_for(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Asked], CompileReport]:
    """What compiling a case says: the quick ones in one process, and so the others."""
    skip_without_the_compiler()

    @cache
    def several(asked: tuple[Asked, ...]) -> dict[Asked, CompileReport]:
        root, found = tmp_path_factory.mktemp("compiled"), {}
        for target in sorted({target for _, target in asked}):
            names = [name for name, other in asked if other == target]
            for name in names:
                sw.emit(CASES[name].reshard(), backends=("pallas_tpu",)).write(root / name)
            folders = [root / name for name in names]
            for report in compile_bundles(folders, [target], xla=False, time_limit=120):
                found[report.name, target] = report
        return found

    others = tuple(each for each in ASKED if each not in (*QUICKLY, *SWEPT))
    groups = QUICKLY, SWEPT, others
    return lambda each: several(next(group for group in groups if each in group))[each]


def skip_without_the_compiler() -> None:
    try:
        targets.require(targets.parse_targets(["v5e:2x4"]), saving=False)
    except InputError as error:
        pytest.skip(" ".join(str(error).split()))


def test_the_dozen_is_as_varied_as_it_says() -> None:
    cases = CASES.values()
    assert len(CASES) == 12
    assert {len(case.shape) for case in cases} == {1, 2, 3, 4}
    assert {case.dtype for case in cases} >= {"int8", "bfloat16", "float32", "bool", "int64"}
    assert all(case.reshard().source.mesh.size <= 8 for case in cases)


@pytest.mark.parametrize(
    "asked",
    [
        *(each for each in QUICKLY),
        *(pytest.param(each, marks=pytest.mark.slow) for each in SWEPT),
        *(
            pytest.param(each, marks=pytest.mark.exhaustive)
            for each in ASKED
            if each not in (*QUICKLY, *SWEPT)
        ),
    ],
    ids="-".join,
)
def test_it_compiles_small(compiled_for: Callable[[Asked], CompileReport], asked: Asked) -> None:
    report, name = compiled_for(asked), asked[0]
    assert report.verdict == "ok", report.detail
    if asked[1] == "v6e:2x4":  # which sends to every device directly
        assert report.detail == ""
    assert isinstance(report.code, TpuCode)
    limit = LARGEST_ALIGNED if CASES[name].aligned else LARGEST
    assert 10 * KIB < report.code.code_bytes <= limit
    assert report.code.wire_bytes is not None
    assert report.bound_bytes is not None
    if CASES[name].aligned:
        assert report.code.wire_bytes == report.bound_bytes
    assert report.code.wire_bytes >= report.bound_bytes


@pytest.mark.slow
def test_shards_that_no_device_can_hold_are_not_compiled(tmp_path: Path) -> None:
    skip_without_the_compiler()
    case = Case('<["x"=2, "y"=2]>', (65536, 65536), "float32", '[{"x"}, {}]', '[{}, {"x"}]')
    sw.emit(case.reshard(), backends=("pallas_tpu",)).write(tmp_path / "large")
    (report,) = compile_bundles(tmp_path, ["v5e:2x4"], time_limit=60)
    detail = (
        "the program needs more HBM than a device has; got: 16.00 GiB "
        "(source shard 8.00 GiB, target shard 8.00 GiB"
    )
    assert (report.verdict, report.code) == ("failed", None)
    assert report.detail.startswith(detail)
    assert report.detail.endswith("expected: at most the 15.75 GiB of v5e")
    assert report.xla is not None
    assert report.xla.error.startswith(detail)


def test_staging_counts_as_memory() -> None:
    fields = {"DTYPE": "int8", "LOCAL_SOURCE_SHAPE": (8, GIB), "LOCAL_TARGET_SHAPE": (4, GIB)}
    module = SimpleNamespace(**fields)
    memory.check(module, "v5e:2x4", 3 * GIB)
    memory.check(module, "v5p:2x2x2", 80 * GIB)
    with pytest.raises(InputError) as caught:
        memory.check(module, "v5e:2x4", 4 * GIB)
    assert str(caught.value) == (
        "the program needs more HBM than a device has\n"
        "got: 16.00 GiB (source shard 8.00 GiB, target shard 4.00 GiB, staging 4.00 GiB)\n"
        "expected: at most the 15.75 GiB of v5e"
    )


def shown(*reports: CompileReport) -> list[list[str]]:
    """The cells of the command's table, on paper of the width of a log."""
    out = io.StringIO()
    Console(file=out, width=LOG_WIDTH).print(_tpu(list(reports)))
    rows = [line for line in out.getvalue().splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in row.strip("│").split("│")] for row in rows]


def test_the_table_sets_the_module_beside_xla(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    ours = TpuCode(0.5, 1.25, 98_304, 123_456_789, vmem_bytes=3_391_488, wire_bytes=1_050_000)
    theirs = TpuCode(0.25, 20.0, 10_240, 0, wire_bytes=12_340_000)
    name = "llama3_embed_vocab_to_hidden"
    known = ("pallas_tpu", "ok", "", ours)
    small = replace(ours, wire_bytes=1_050)
    broken = Outcome(error="Received incompatible devices")
    cells = ["v5e:2x4", "ok", "1.75", "96K", "118M", "3312K"]
    assert shown(
        CompileReport(name, "v5e:2x4", *known, Outcome(theirs), 1_000_000),
        CompileReport("small", "v5e:2x4", *known[:3], small, None, 1_000),
        CompileReport("stays", "v5e:2x4", *known, Outcome(replace(theirs, wire_bytes=0)), 0),
        CompileReport("other", "v5e:2x4", *known, broken, 1_050_000),
        CompileReport("bad", "v5e:2x4", "pallas_tpu", "failed", "because", None, None, 7),
    ) == [
        [name, *cells, "1.050", "20.25", "10K", "12"],
        ["small", *cells, "1050 B", "-", "-", "-"],
        ["stays", *cells, "1025K", "20.25", "10K", "0"],
        ["other", *cells, "1.000", "-", "failed", "-"],
        ["bad", "v5e:2x4", "failed", *"-" * 8],
    ]


COMPOSED = """
import sys
from pathlib import Path
import jax
from shardwright.codegen.backends.pallas_tpu.compile.run import _argument, _meshes
from shardwright.codegen.checks.load import load
there, back = (load(Path(path)) for path in sys.argv[1:])
mesh, _ = _meshes(there, "v5e:2x4")
def program(x):
    y = there.reshard(x, mesh)
    return there.reshard(back.reshard(y, mesh), mesh)
x = _argument(there, there.PADDED_SOURCE_SHAPE, there.source_sharding(mesh))
compiled = jax.jit(program, out_shardings=there.target_sharding(mesh)).lower(x).compile()
print(there.COLLECTIVE_ID, back.COLLECTIVE_ID, compiled.as_text().count('"tpu_custom_call"'))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["primes"])
def test_two_modules_and_one_twice_compile_as_one_program(tmp_path: Path, name: str) -> None:
    skip_without_the_compiler()
    there = CASES[name].reshard()
    back = sw.Reshard(there.shape, there.dtype, there.target, there.source)
    for folder, reshard in (("there", there), ("back", back)):
        sw.emit(reshard, backends=("pallas_tpu",)).write(tmp_path / folder)
    modules = [str(tmp_path / folder / "pallas_tpu.py") for folder in ("there", "back")]
    first, second, kernels = map(int, asked_of_the_compiler(COMPOSED, tmp_path, *modules).split())
    assert first != second
    assert kernels >= 3


def asked_of_the_compiler(program: str, folder: Path, *words: str) -> str:
    """What a Python program prints that the TPU compiler is there for."""
    result = subprocess.run(
        [sys.executable, "-P", "-c", program, *words],
        env=with_own(compilers()["pallas_tpu"].environment(folder)),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


CONFIRM = """
import json, re, sys
import jax, numpy
from jax.experimental import pallas as pl, topologies
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import Mesh, NamedSharding, PartitionSpec
def greedy(x):
    compiler_params = pltpu.CompilerParams(vmem_limit_bytes=2**31 - 1)
    def double(x_ref, y_ref):
        y_ref[...] = x_ref[...] * 2
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(double, out_shape=shape, compiler_params=compiler_params)(x)
def compiled(function, shape):
    x = jax.ShapeDtypeStruct(shape, "float32", sharding=one)
    return jax.jit(function).lower(x).compile()
for topology in sys.argv[1:]:
    description = topologies.get_topology_desc(platform="tpu", topology_name=topology)
    devices = description.devices
    one = NamedSharding(Mesh(numpy.array(devices[:1]), ("device",)), PartitionSpec())
    text = compiled(greedy, (8, 128)).as_text()
    call = text[text.index('"tpu_custom_call"'):]
    vmem = re.search(r'scoped_memory_configs":[^]]*"size":"(\\d+)"', call)
    try:
        compiled(lambda x: x + 1, (2**36,))
    except Exception as error:
        hbm = re.search(r"available HBM .([\\d.]+)G", str(error))
    sizes = [max(d.coords[i] for d in devices) + 1 for i in range(3)]
    print(json.dumps([len(devices), sizes, int(vmem[1]), float(hbm[1])]))
"""


@pytest.mark.slow
def test_the_compiler_knows_the_chips_as_they_are_stated(tmp_path: Path) -> None:
    """Devices, extents of the torus, VMEM that a kernel may ask for, HBM of a device."""
    skip_without_the_compiler()
    asked = [f"{chip.generation}:{chip.layouts[1]}" for chip in CHIPS]
    said = asked_of_the_compiler(CONFIRM, tmp_path, *asked)
    for topology, chip, line in zip(asked, CHIPS, said.splitlines(), strict=True):
        devices, sizes, vmem, hbm = json.loads(line)
        torus = torus_of(topology)
        assert devices == torus.chips * chip.devices
        assert tuple(sizes) == (*torus.sizes, 1)[:3]
        assert vmem == chip.vmem_bytes
        assert hbm == pytest.approx(chip.hbm_bytes / GIB, abs=0.005)


LAYOUTS = """
import json, re, sys
import jax, numpy
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec
devices = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x4").devices
one = NamedSharding(Mesh(numpy.array(devices[:1]), ("device",)), PartitionSpec())
for shape, dtype in json.loads(sys.argv[1]):
    x = jax.ShapeDtypeStruct(tuple(shape), dtype, sharding=one)
    text = jax.jit(lambda x: x + 1).lower(x).compile().as_text()
    layout = r"entry_computation_layout={\\(\\w+\\[[^]]*\\]{([\\d,]+):T\\(([\\d,]+)\\)"
    order, tile = re.search(layout, text).groups()
    print(json.dumps([[int(axis) for axis in order.split(",")][::-1], int(tile.split(",")[0])]))
"""
SHAPES = (
    *((5004, 3337), (4096, 3), (3, 4096), (1, 128), (64, 130)),
    *((16, 5, 64), (64, 4000, 5), (100, 3, 3, 256), (20000,)),
)


@pytest.mark.slow
def test_the_compiler_lays_arrays_out_as_the_forms_assume(tmp_path: Path) -> None:
    """Which dimensions are rows and lanes by default, and how many rows a tile of memory has."""
    skip_without_the_compiler()
    asked = [(shape, dtype) for shape in SHAPES for dtype in ("float32", "bfloat16", "int8")]
    said = asked_of_the_compiler(LAYOUTS, tmp_path, json.dumps(asked))
    for (shape, dtype), line in zip(asked, said.splitlines(), strict=True):
        order, tile = json.loads(line)
        view = default_view(shape, DTYPES[dtype])
        assert tuple(order) == view, (shape, dtype)
        rows = tile_rows(shape[view[-2]], DTYPES[dtype]) if len(shape) > 1 else FLAT_UNIT
        assert tile == rows, (shape, dtype)


def test_what_a_module_warns_of_is_said(compiled_for: Callable[[Asked], CompileReport]) -> None:
    """Compiled for a v5e without its topology, some pairs of devices are not sent to directly."""
    warned = compiled_for(("thin", "v5e:2x4"))
    assert warned.verdict == "ok"
    assert warned.detail.startswith("warns: a v5e cannot send directly between 11 of the 21 pairs")
