"""The resources and memory instructions of the corpus's GPU kernels, read from the compiler's
assembly.

`python -m bench gpu_assembly`. No kernel runs: the fraction of bytes that 16-byte instructions move
follows from the widths of all instructions and from the rows that each instruction moves.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from shardwright.codegen.backends.triton_gpu.compile import resources
from shardwright.codegen.backends.triton_gpu.compile.run import code_of, compiled, kinds
from shardwright.codegen.backends.triton_gpu.rows import LINE, Moves
from shardwright.codegen.checks.load import load
from shardwright.codegen.moves import plan
from shardwright.codegen.operations.compile import GpuCode
from shardwright.codegen.operations.emit.modules import parts
from shardwright.codegen.spec.config import load_toml
from shardwright.codegen.text.context import as_vectors
from shardwright.ir import Reshard
from shardwright.ir.dtypes import DTYPES

TARGET = "sm_90"
FEW = 4
"""How many times more threads each program has in kernels with few programs."""
CORPUS = tuple(
    Path(__file__).parent.parent / "corpus" / name for name in ("reshards.toml", "examples.toml")
)


@dataclass(frozen=True)
class Row:
    """One kernel. `moves`: how its rows are copied; `code`: the resources that the compiler
    reports; `loads`, `stores`: the bytes of each load and store instruction."""

    moves: Moves
    code: GpuCode
    loads: tuple[int, ...]
    stores: tuple[int, ...]

    @property
    def share(self) -> tuple[float, float]:
        """The fractions of the loaded and of the stored bytes that 16-byte instructions move."""
        return self._share(self.loads), self._share(self.stores)

    def _share(self, widths: tuple[int, ...]) -> float:
        wide = sum(width for width in widths if width >= LINE) / sum(widths)
        # A kernel with wide and narrow instructions uses the wide ones for the rows that allow
        # them.
        return self.moves.line_share if self.moves.form == "mixed" and wide else wide

    @property
    def why(self) -> str:
        """Why 16-byte instructions do not move the other bytes, or "" if they move all."""
        if self.moves.form == "lines":
            return ""
        said = f"rows begin or end at odd multiples of {self.moves.unit} B"
        return said if self.moves.form == "units" else f"{said} where ends of lines do not meet"


def measured(reshard: Reshard, target: str = TARGET, times: int = 1) -> Row:
    """Compile the kernel of a reshard and return its row. `times`: how many times more threads each
    program has."""
    made = plan(reshard, "direct")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "triton_gpu.py"
        path.write_text(parts(made, "triton_gpu", "shardwright emit", single_file=True)[0].text)
        start = time.perf_counter()
        kernel = compiled(load(path), target, times=times)
        code = code_of(kernel, time.perf_counter() - start)
    text = kernel.asm[kinds(kernel)[1]]
    loads, stores = (resources.widths(text, kind) for kind in ("ld", "st"))
    # The last loads belong to the stores. Earlier ones load the addresses of peers.
    moves = Moves(as_vectors(made.exchange), DTYPES[reshard.dtype])
    return Row(moves, code, loads[len(loads) - len(stores) :], stores)


def main(target: str = TARGET) -> None:
    """Print the table. Its second to last column says whether the kernel with few programs has the
    same fractions and does not spill."""
    table = Table(title=f"Kernels for {target}: what moves bytes, what they use")
    for column in (
        "reshard",
        "form",
        "16 B loads",
        "stores",
        "registers",
        "spilled B",
        "looped div",
        "few alike",
    ):
        table.add_column(column, justify="left" if column in ("reshard", "form") else "right")
    table.add_column("why not all")
    for path in CORPUS:
        for description in load_toml(path):
            reshard = description.reshard()
            if reshard.source.unreduced:  # terms are added as numbers, not moved in units
                continue
            row, few = (measured(reshard, target, times) for times in (1, FEW))
            shares = (f"{share:.0%}" for share in row.share)
            used = (row.code.registers, row.code.stack_bytes, row.code.looped_divisions)
            same = "yes" if few.share == row.share and few.code.stack_bytes == 0 else "no"
            cells = (*shares, *map(str, used), same)
            table.add_row(description.name, row.moves.form, *cells, row.why)
    Console().print(table)
