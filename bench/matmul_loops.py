"""The predicted microseconds of 60 matmuls, from few rows to many: with operands moved first, and
with operands moved in a loop.

The table is written to `matmul_loops.md` in this folder. Nothing runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import shardwright as sw
from shardwright.codegen.moves.matmul.plan import plan_matmul
from shardwright.ir.errors import InputError

RESULT = Path(__file__).parent / "matmul_loops.md"
TOPOLOGIES = ("v5e:2x4", "v5p:2x2x2", "h100")
MESH = sw.Mesh({"x": 8})
ROWS = (8, 64, 512, 2048, 8192)
SIZES = ((8192, 8192), (1024, 8192), (8192, 28672), (28672, 8192))
SHARDINGS = {
    "rhs split, lhs gathered": ('[{"x"}, {}]', '[{}, {"x"}]', '[{}, {"x"}]'),
    "lhs split, rhs gathered": ('[{"x"}, {}]', '[{"x"}, {}]', '[{"x"}, {}]'),
    "contraction split, scattered": ('[{}, {"x"}]', '[{"x"}, {}]', '[{"x"}, {}]'),
}


def matmul_shapes() -> Iterator[sw.Matmul]:
    """Yield 60 matmuls, whose rows range from the number of devices upwards."""
    for sides, (inner, columns), rows in itertools.product(SHARDINGS.values(), SIZES, ROWS):
        lhs, rhs, out = map(MESH.sharding, sides)
        yield sw.Matmul("bfloat16", lhs=((rows, inner), lhs), rhs=((inner, columns), rhs), out=out)


def _cell(matmul: sw.Matmul, topology: str) -> str:
    """Return the microseconds with operands moved first and in the fastest loop, if there is one.
    The planner's choice is bold."""
    chosen = plan_matmul(matmul, topology, listed=0).chosen
    found = []
    for loops in (("never",), ("one", "both")):
        seconds = []
        for loop in loops:
            try:
                seconds.append(
                    plan_matmul(matmul, topology, loop=loop, listed=0).chosen.cost.seconds
                )
            except InputError:
                continue
        taken = bool(seconds) and min(seconds) == chosen.cost.seconds
        text = f"{1e6 * min(seconds):,.1f}" if seconds else "-"
        found.append(f"**{text}**" if taken else text)
    return " / ".join(found)


def main() -> None:
    """Write the table, and print how many loops are chosen for each topology."""
    matmuls = list(matmul_shapes())
    names = [name for name in SHARDINGS for _ in range(len(SIZES) * len(ROWS))]
    lines = [
        "# Matmuls moved first and in a loop",
        "",
        "Predicted microseconds on 8 devices, bfloat16 (`python -m bench matmul_loops`): moved",
        "first, and in the quickest loop. The candidate that a plan takes is bold.",
        "",
        f"| shape | sharding | {' | '.join(TOPOLOGIES)} |",
        "| --- | --- " + "| ---: " * len(TOPOLOGIES) + "|",
    ]
    for matmul, name in zip(matmuls, names, strict=True):
        (rows, inner), (_, columns) = (matmul.shape(side) for side in ("lhs", "rhs"))
        cells = " | ".join(_cell(matmul, topology) for topology in TOPOLOGIES)
        lines.append(f"| {rows} x {inner} x {columns} | {name} | {cells} |")
    RESULT.write_text("\n".join(lines) + "\n")
    for topology in TOPOLOGIES:
        chosen = (plan_matmul(matmul, topology, listed=0).chosen for matmul in matmuls)
        loops = sum(each.loop is not None for each in chosen)
        print(f"{topology}: a loop in {loops} of {len(matmuls)}")
