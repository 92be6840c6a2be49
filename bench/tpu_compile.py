"""What the TPU compiler makes of emitted modules: how many compile, and how code grows."""

from __future__ import annotations

import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from rich.table import Table

import shardwright as sw
from bench.reshards import corpus, random_reshards
from shardwright.codegen.cli.tables import console
from shardwright.codegen.compile import Report, TpuCode, compile_bundles
from shardwright.ir.errors import InputError

TOPOLOGIES = ("v5e:2x4", "v5e:4x4", "v6e:2x4", "v5p:2x2x2")
RANDOM = 200
# Tiles of this size and more are to pad by 5% at most: rows and columns.
LARGE = (64, 1024)
PADDED = 1.05
TIME_LIMIT = 300.0

# Mesh axes, and the smallest slice of one generation that has as many devices. No mesh is square:
# there a transpose only renames the devices.
GROWTH = (
    ({"x": 2, "y": 4}, "v5p:2x2x2"),
    ({"x": 2, "y": 8}, "v5p:2x2x4"),
    ({"x": 4, "y": 16}, "v5p:4x4x4"),
    ({"x": 8, "y": 32}, "v5p:8x8x8"),
    ({"x": 16, "y": 32}, "v5p:8x8x8"),
)
# Of the unaligned, shards along one axis are no multiple of those along the other on any mesh.
TRANSPOSES = {
    "aligned": ((65536, 65536), "bfloat16"),
    "unaligned": ((10117, 10121), "float32"),
    "unaligned, large": ((80001, 80010), "float32"),
}


@dataclass(frozen=True)
class Emitted:
    """Bundles on disk: what each is of, the form that its module says it has, and what the
    generator refused, with its message."""

    root: Path
    reshards: Mapping[str, sw.Reshard]
    forms: Mapping[str, str]
    refused: Mapping[str, str]


def emitted(root: Path, reshards: Mapping[str, sw.Reshard]) -> Emitted:
    """Bundles of reshards, by name, below a folder."""
    forms, refused = {}, {}
    for name, reshard in reshards.items():
        try:
            sw.emit(reshard, backends=("pallas_tpu",)).write(root / name)
        except InputError as error:
            refused[name] = "; ".join(str(error).splitlines())
        else:
            found = re.search(
                r'^FORM = "(\w+)"$', (root / name / "pallas_tpu.py").read_text(), re.M
            )
            forms[name] = found[1] if found else "-"
    return Emitted(root, {name: reshards[name] for name in forms}, forms, refused)


def compiled(bundles: Emitted, topologies: Iterable[str]) -> dict[str, tuple[Report, ...]]:
    """The reports for each topology, several at a time: seconds are not those of one alone."""

    def one(topology: str) -> tuple[Report, ...]:
        return compile_bundles(bundles.root, [topology], xla=False, time_limit=TIME_LIMIT)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(topologies, pool.map(one, topologies), strict=True))


def shares(bundles: Emitted, reports: Mapping[str, tuple[Report, ...]]) -> Table:
    """For each topology how many modules compile, and the largest."""
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


def forms(bundles: Emitted, reports: tuple[Report, ...]) -> Table:
    """For each form its modules, and bytes on the wire over the exact ones, all and large tiles."""
    columns = ("form", "modules", "that move", "wire / exact: mean", "worst", "large tiles", "mean")
    table = _table("Forms, and what the busiest device receives", *columns, "worst")
    ratios = {r.name: ratio for r in reports if (ratio := over_bound(r)) is not None}
    for form, count in sorted(Counter(bundles.forms.values()).items()):
        mine = {n: ratio for n, ratio in ratios.items() if bundles.forms[n] == form}
        large = [ratio for name, ratio in mine.items() if is_large(bundles.reshards[name])]
        cells = (*_spread(list(mine.values())), *_spread(large))
        table.add_row(form, str(count), *cells)
    return table


def over_bound(report: Report) -> float | None:
    """Bytes that the busiest device receives over the exact ones; None where nothing moves or the
    module does not say."""
    code = report.code
    if not isinstance(code, TpuCode) or code.wire_bytes is None or not report.bound_bytes:
        return None
    return code.wire_bytes / report.bound_bytes


def is_large(reshard: sw.Reshard) -> bool:
    """Whether every tile that moves has at least LARGE rows and columns."""
    tiles = smallest_tile(reshard)
    return len(tiles) >= 2 and all(n >= least for n, least in zip(tiles[-2:], LARGE, strict=True))


def smallest_tile(reshard: sw.Reshard) -> tuple[int, ...]:
    """The smallest extent of a tile that moves, a dimension; empty where none does."""
    transfers = sw.plan(reshard).transfers()
    moved = transfers.tensor[~transfers.is_local]
    return tuple(map(int, (moved[..., 1] - moved[..., 0]).min(axis=0))) if len(moved) else ()


def padded(bundles: Emitted, reports: tuple[Report, ...]) -> Table:
    """The reshards whose messages are padded by more than 5%, with the tile that is why."""
    table = _table(
        f"Bytes on the wire more than {PADDED} times the exact ones",
        *("reshard", "dtype", "shape", "smallest tile", "form", "wire / exact"),
    )
    found = [
        (ratio, report.name) for report in reports if (ratio := over_bound(report) or 0) > PADDED
    ]
    for ratio, name in sorted(found, reverse=True):
        reshard = bundles.reshards[name]
        tile = "x".join(map(str, smallest_tile(reshard)))
        shape = "x".join(map(str, reshard.shape))
        table.add_row(name, reshard.dtype, shape, tile, bundles.forms[name], f"{ratio:.3f}")
    return table


def growth(sizes: int = len(GROWTH)) -> Table:
    """The transposes over more and more devices, beside XLA's reshard of the same."""
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
) -> tuple[str, Report]:
    """The form of the module that moves the axes of a matrix to the other dimension, and what its
    compilation says, in a process of its own."""
    mesh = sw.Mesh(dict(axes))
    source, target = mesh.sharding('[{"x"}, {"y"}]'), mesh.sharding('[{"y"}, {"x"}]')
    reshard = sw.Reshard(shape=shape, dtype=dtype, source=source, target=target)
    with tempfile.TemporaryDirectory() as folder:
        bundles = emitted(Path(folder), {"transpose": reshard})
        (report,) = compile_bundles(folder, [topology], time_limit=600)
    return bundles.forms["transpose"], report


def _ours(report: Report, first: int | None) -> tuple[str, ...]:
    code = report.code
    if not isinstance(code, TpuCode):
        return ("-", "-", report.detail, "-")
    seconds = (f"{code.lower_seconds:.2f}", f"{code.compile_seconds:.2f}")
    return (*seconds, f"{code.code_bytes:,}", f"{code.code_bytes / (first or 1):.2f}")


def _xla(report: Report) -> tuple[str, str]:
    assert report.xla is not None
    code = report.xla.code
    if not isinstance(code, TpuCode):
        return "-", report.xla.error
    return f"{code.lower_seconds + code.compile_seconds:.2f}", f"{code.code_bytes:,}"


def _spread(ratios: list[float]) -> tuple[str, str, str]:
    if not ratios:
        return "0", "-", "-"
    return str(len(ratios)), f"{mean(ratios):.3f}", f"{max(ratios):.3f}"


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title)
    words = ("reshard", "form", "topology")
    for column in columns:
        table.add_column(column, justify="left" if column in words else "right")
    return table


def main(count: int = RANDOM) -> None:
    """Print the tables, over so many random reshards beside the corpus."""
    paper = console()
    with tempfile.TemporaryDirectory() as folder:
        bundles = emitted(Path(folder), corpus() | random_reshards(count))
        reports = compiled(bundles, TOPOLOGIES)
    one, *_ = reports.values()
    for table in (shares(bundles, reports), forms(bundles, one), padded(bundles, one)):
        paper.print(table)
    for name, why in bundles.refused.items():
        paper.print(f"{name}, refused: {why}", highlight=False)
    for report in (report for listed in reports.values() for report in listed if report.detail):
        paper.print(f"{report.name} for {report.target}: {report.detail}", highlight=False)
    paper.print(growth())
