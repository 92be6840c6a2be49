"""The bytes that ranks copy to symmetric memory for other ranks to read: the parts of a shard that
leave its device.

`python -m bench gpu_staging`. For each reshard of the corpus that is one exchange, the table has
the bytes of the parts that the emitted module copies, and of whole shards, which earlier modules
copied. If a shard is in symmetric memory already, nothing is copied. Nothing runs.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from rich.console import Console
from rich.table import Table

from bench.reshards import corpus
from shardwright.codegen.checks.load import load
from shardwright.codegen.moves import plan
from shardwright.codegen.operations.emit.modules import parts
from shardwright.ir import Reshard

MIB = 2**20


@dataclass(frozen=True)
class Row:
    """One reshard. `whole`: the bytes of the largest shard; `staged`: the bytes that the busiest
    device copies; `all_whole`, `all_staged`: the same, summed over all devices."""

    whole: int
    staged: int
    all_whole: int
    all_staged: int


def measured(reshard: Reshard) -> Row:
    """Return the bytes that the module of a reshard copies, and the bytes of whole shards."""
    made = plan(reshard, "direct")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "triton_gpu.py"
        path.write_text(parts(made, "triton_gpu", "shardwright emit", single_file=True)[0].text)
        module = load(path)
        both = [
            [_bytes(module, device, whole) for device in module.SOURCE_IDS]
            for whole in (True, False)
        ]
    whole, staged = both
    return Row(max(whole), max(staged), sum(whole), sum(staged))


def _bytes(module: ModuleType, device: int, whole: bool) -> int:
    entries = module._HOST.phases[0].processes._staged(device, whole)
    return sum(entry.rows * entry.columns for entry in entries)


def main() -> None:
    table = Table(title="MiB copied to symmetric memory, busiest device and all devices")
    for column in (
        "reshard",
        "whole shard",
        "what leaves",
        "of all",
        "what leaves of all",
        "share",
    ):
        table.add_column(column, justify="left" if column == "reshard" else "right")
    for name, reshard in corpus().items():
        row = measured(reshard)
        sizes = (row.whole, row.staged, row.all_whole, row.all_staged)
        cells = (f"{size / MIB:.3g}" for size in sizes)
        table.add_row(name, *cells, f"{row.all_staged / row.all_whole:.0%}")
    Console().print(table)
