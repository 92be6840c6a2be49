"""The bytes that ranks pack and unpack around an exchange. Contiguous tiles stay in place.

`python -m bench gpu_packing`. For each reshard of the corpus, and for random reshards together, the
table has three byte counts, each for the device that packs most and for all devices: the bytes sent
and received; those that earlier modules packed (none if every tile is contiguous at both ends and
no terms are added, otherwise all); and those of the buffers that modules have now. Nothing runs.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.reshards import corpus, random_reshards
from shardwright.codegen.checks.load import load
from shardwright.codegen.moves import plan
from shardwright.codegen.operations.emit.modules import parts
from shardwright.ir import Reshard

MIB = 2**20
RANDOM = 50


@dataclass(frozen=True)
class Row:
    """One reshard, with tuples of bytes per device. `travel`: sent or received; `before`: packed or
    unpacked by earlier modules; `now`: packed or unpacked now; `in_place`: the sides on which each
    exchange packs nothing."""

    travel: tuple[int, ...]
    before: tuple[int, ...]
    now: tuple[int, ...]
    in_place: tuple[tuple[str, ...], ...]


def measured(reshard: Reshard) -> Row:
    """Return the bytes that the module of a reshard packs."""
    made = plan(reshard, "direct")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "triton_gpu.py"
        path.write_text(parts(made, "triton_gpu", "shardwright emit", single_file=True)[0].text)
        phases = load(path)._HOST.phases
        kinds: tuple[Counter[int], ...] = Counter(), Counter(), Counter()
        for phase in phases:
            for device in phase.exchange.ranks:
                for kind, size in zip(kinds, _bytes(phase, device), strict=True):
                    kind[device] += size
    travel, before, now = (tuple(kind.values()) for kind in kinds)
    return Row(travel, before, now, tuple(phase.tiles.together for phase in phases))


def _bytes(phase: Any, device: int) -> tuple[int, int, int]:
    """Return three byte counts of a device: the bytes sent or received, the bytes packed by earlier
    modules, and the bytes packed now."""
    wire = phase.processes._wire(device, "cpu")
    travel = sum(wire.sent) + sum(wire.received)
    was_in_place = len(phase.tiles.together) == 2 and not phase.exchange.hidden
    return travel, 0 if was_in_place else travel, sum(map(len, wire.buffers()))


def main() -> None:
    table = Table(title="MiB packed and unpacked, busiest device and all devices")
    for column in ("reshard", "in place", "travels", "before", "now", "of all", "before", "now"):
        table.add_column(column, justify="left" if column in ("reshard", "in place") else "right")
    for name, reshard in corpus().items():
        row = measured(reshard)
        ends = " then ".join(" and ".join(each) or "-" for each in row.in_place)
        table.add_row(name, ends, *_cells(row))
    rows = [measured(each) for each in random_reshards(RANDOM).values()]
    kinds = zip(*((row.travel, row.before, row.now) for row in rows), strict=True)
    travel, before, now = (tuple(map(sum, kind)) for kind in kinds)
    some = sum(any(row.in_place) and sum(row.travel) > 0 for row in rows)
    total = Row(travel, before, now, ())
    table.add_row(f"{RANDOM} at random", f"{some} somewhere", "", "", "", *_cells(total)[3:])
    Console().print(table)


def _cells(row: Row) -> list[str]:
    kinds = row.travel, row.before, row.now
    sizes = (found(kind) / MIB for found in (max, sum) for kind in kinds)
    return [f"{size:,.0f}" if size >= 1000 else f"{size:.3g}" for size in sizes]
