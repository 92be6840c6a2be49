"""Compile emitted modules with the TPU compiler: how many compile, and how code grows with the
number of devices."""

from __future__ import annotations

import itertools
import math
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median

from rich.table import Table

import shardwright as sw
from bench.reshards import corpus, random_reshard, random_reshards
from shardwright.codegen.backends.pallas_tpu.figures import Figures
from shardwright.codegen.backends.pallas_tpu.strategy import FormChoice, choices, preferred
from shardwright.codegen.cli.tables import console
from shardwright.codegen.operations.bundles.compile import compile_bundles
from shardwright.codegen.operations.compile import CompileReport, TpuCode
from shardwright.ir.errors import InputError

TOPOLOGIES = ("v5e:2x4", "v5e:4x4", "v6e:2x4", "v5p:2x2x2")
RANDOM = 200
# Tiles with at least this many rows and columns may be padded by at most 5%.
LARGE = (64, 1024)
PADDED = 1.05
TIME_LIMIT = 300.0
TURNS = 3

# The axes of a mesh, and the smallest listed slice with enough devices. No mesh is square, because
# a transpose on a square mesh only renames devices.
GROWTH = (
    ({"x": 2, "y": 4}, "v5p:2x2x2"),
    ({"x": 2, "y": 8}, "v5p:2x2x4"),
    ({"x": 4, "y": 16}, "v5p:4x4x4"),
    ({"x": 8, "y": 32}, "v5p:8x8x8"),
    ({"x": 16, "y": 32}, "v5p:8x8x8"),
)
# In an unaligned matrix, the extent of a shard along one axis is not a multiple of that along the
# other axis, on any of these meshes.
TRANSPOSES = {
    "aligned": ((65536, 65536), "bfloat16"),
    "unaligned": ((10117, 10121), "float32"),
    "unaligned, large": ((80001, 80010), "float32"),
}


@dataclass(frozen=True)
class Emitted:
    """Bundles on disk. `reshards`: the reshard of each; `choices`: the form of its kernel, with its
    costs; `refused`: the generator's message for each reshard that it refused."""

    root: Path
    reshards: Mapping[str, sw.Reshard]
    choices: Mapping[str, FormChoice]
    refused: Mapping[str, str]


def emitted(root: Path, reshards: Mapping[str, sw.Reshard]) -> Emitted:
    """Emit bundles of reshards, by name, below a folder."""
    choices, refused = {}, {}
    for name, reshard in reshards.items():
        plan = sw.plan(reshard)
        try:
            sw.emit(plan, backends=("pallas_tpu",)).write(root / name)
        except InputError as error:
            refused[name] = "; ".join(str(error).splitlines())
        else:
            choices[name] = chosen(plan)
    return Emitted(root, {name: reshards[name] for name in choices}, choices, refused)


def compiled(bundles: Emitted, topologies: Iterable[str]) -> dict[str, tuple[CompileReport, ...]]:
    """Return the reports for each topology. Several topologies are compiled at the same time, so
    the seconds are not those of a single compilation."""

    def one(topology: str) -> tuple[CompileReport, ...]:
        return compile_bundles(bundles.root, [topology], xla=False, time_limit=TIME_LIMIT)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(topologies, pool.map(one, topologies), strict=True))


def shares(bundles: Emitted, reports: Mapping[str, tuple[CompileReport, ...]]) -> Table:
    """Return the table of how many modules compile, and of the largest code, for each topology."""
    table = _table(
        "Modules that compile", "topology", "reshards", "compile", "share", "largest code"
    )
    asked = len(bundles.reshards) + len(bundles.refused)
    for topology, listed in reports.items():
        codes = [report.code for report in listed if isinstance(report.code, TpuCode)]
        largest = max((code.code_bytes for code in codes), default=0)
        table.add_row(
            topology, str(asked), str(len(codes)), f"{len(codes) / asked:.1%}", f"{largest:,}"
        )
    return table


def forms(title: str, choices: Iterable[FormChoice]) -> Table:
    """Return the table of each form: its bytes on the wire relative to the exact bytes, and its HBM
    traffic relative to the minimum."""
    listed = tuple(choices)
    table = _table(title, "form", "modules", *_FIGURES)
    table.caption = "least: every tile read once, every target shard written once, padding too"
    for form in sorted({choice.form.name for choice in listed}):
        found = [choice.figures for choice in listed if choice.form.name == form]
        table.add_row(form, str(len(found)), *_figures(found))
    return table


def large(count: int) -> list[FormChoice]:
    """Return the forms of the first `count` random reshards that move only large tiles."""
    reshards = filter(is_large, map(random_reshard, itertools.count()))
    return [chosen(sw.plan(reshard)) for reshard in itertools.islice(reshards, count)]


def chosen(plan: sw.Plan) -> FormChoice:
    """Return the form that the generator chooses for a plan."""
    return preferred(plan.once(choices))


_FIGURES = (
    *("wire / exact: mean", "median", "worst", "HBM / least: mean", "median", "worst"),
    "relayout: mean",
)


def _figures(found: Sequence[Figures]) -> list[str]:
    ratios = ([f.wire_padding for f in found], [f.hbm_factor for f in found])
    copied = mean(f.relayout_bytes / f.hbm_least for f in found)
    return [
        *(f"{of(values):.3f}" for values in ratios for of in (mean, median, max)),
        f"{copied:.3f}",
    ]


def is_large(reshard: sw.Reshard) -> bool:
    """Return whether every tile that moves has at least LARGE rows and columns."""
    tiles = smallest_tile(reshard)
    return len(tiles) >= 2 and all(n >= least for n, least in zip(tiles[-2:], LARGE, strict=True))


def smallest_tile(reshard: sw.Reshard) -> tuple[int, ...]:
    """Return the smallest extent of the moving tiles in each dimension, or nothing if no tile
    moves."""
    transfers = sw.plan(reshard).transfers()
    moved = transfers.tensor[~transfers.is_local]
    return tuple(map(int, (moved[..., 1] - moved[..., 0]).min(axis=0))) if len(moved) else ()


def padded(bundles: Emitted) -> Table:
    """Return the table of reshards for which padding adds more than 5% to the bytes on the wire,
    with their smallest tiles."""
    table = _table(
        f"Bytes on the wire more than {PADDED} times the exact ones",
        *("reshard", "dtype", "shape", "smallest tile", "form", "wire / exact"),
    )
    ratios = {name: choice.figures.wire_padding for name, choice in bundles.choices.items()}
    for name, ratio in sorted(ratios.items(), key=lambda pair: -pair[1]):
        if ratio > PADDED:
            reshard, form = bundles.reshards[name], bundles.choices[name].form.name
            shapes = ("x".join(map(str, s)) for s in (reshard.shape, smallest_tile(reshard)))
            table.add_row(name, reshard.dtype, *shapes, form, f"{ratio:.3f}")
    return table


def growth(sizes: int = len(GROWTH)) -> Table:
    """Return the table of transposes over more and more devices, with XLA's own reshards."""
    columns = ("form", "lower s", "compile s", "code B", "of 8", "XLA s", "XLA code B")
    table = _table("A transpose over more and more devices", "reshard", "devices", *columns)
    for what, (shape, dtype) in TRANSPOSES.items():
        first: int | None = None
        for axes, topology in GROWTH[:sizes]:
            form, report = transposed(axes, topology, shape, dtype)
            first = first or (report.code.code_bytes if isinstance(report.code, TpuCode) else None)
            devices = str(axes["x"] * axes["y"])
            table.add_row(what, devices, form, *_ours(report, first), *_xla(report))
    return table


def transposed(
    axes: Mapping[str, int], topology: str, shape: tuple[int, ...], dtype: str
) -> tuple[str, CompileReport]:
    """Return the form of the module that swaps the axes of a matrix, and its compilation report.
    Each compilation has a separate process; the fastest of TURNS counts, for ours and for XLA's."""
    mesh = sw.Mesh(dict(axes))
    source, target = mesh.sharding('[{"x"}, {"y"}]'), mesh.sharding('[{"y"}, {"x"}]')
    reshard = sw.Reshard(shape=shape, dtype=dtype, source=source, target=target)
    with tempfile.TemporaryDirectory() as folder:
        bundles = emitted(Path(folder), {"transpose": reshard})
        turns = [compile_bundles(folder, [topology], time_limit=600)[0] for _ in range(TURNS)]
    ours = min(turns, key=lambda report: _seconds(report.code))
    theirs = min((report.xla for report in turns if report.xla), key=lambda xla: _seconds(xla.code))
    return bundles.choices["transpose"].form.name, replace(ours, xla=theirs)


def _seconds(code: object) -> float:
    return code.lower_seconds + code.compile_seconds if isinstance(code, TpuCode) else math.inf


def _ours(report: CompileReport, first: int | None) -> tuple[str, ...]:
    code = report.code
    if not isinstance(code, TpuCode):
        return ("-", "-", report.detail, "-")
    seconds = (f"{code.lower_seconds:.2f}", f"{code.compile_seconds:.2f}")
    return (*seconds, f"{code.code_bytes:,}", f"{code.code_bytes / (first or 1):.2f}")


def _xla(report: CompileReport) -> tuple[str, str]:
    assert report.xla is not None
    code = report.xla.code
    if not isinstance(code, TpuCode):
        return "-", report.xla.error
    return f"{_seconds(code):.2f}", f"{code.code_bytes:,}"


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title)
    words = ("reshard", "form", "topology")
    for column in columns:
        table.add_column(column, justify="left" if column in words else "right")
    return table


def main(count: int = RANDOM) -> None:
    """Print the tables of the corpus and of `count` random reshards."""
    paper = console()
    with tempfile.TemporaryDirectory() as folder:
        bundles = emitted(Path(folder), corpus() | random_reshards(count))
        reports = compiled(bundles, TOPOLOGIES)
    paper.print(shares(bundles, reports))
    paper.print(forms("Forms", bundles.choices.values()))
    rows, columns = LARGE
    title = f"Random reshards whose tiles have at least {rows} rows and {columns} columns"
    paper.print(forms(title, large(count)))
    paper.print(padded(bundles))
    for name, why in bundles.refused.items():
        paper.print(f"{name}, refused: {why}", highlight=False)
    for report in (report for listed in reports.values() for report in listed if report.detail):
        paper.print(f"{report.name} for {report.target}: {report.detail}", highlight=False)
    paper.print(growth())
