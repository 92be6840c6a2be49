"""For all pairs of shardings of a matrix: the bytes that the busiest sender sends, divided by their
lower bound."""

from __future__ import annotations

import itertools

import numpy as np
from rich.console import Console
from rich.table import Table

import shardwright as sw

CASES = (
    ({"x": 2, "y": 3}, (96, 132)),
    ({"x": 2, "y": 3}, (97, 131)),
    ({"x": 2, "y": 4}, (128, 96)),
    ({"x": 2, "y": 4}, (131, 97)),
    ({"x": 2, "y": 2, "z": 2}, (128, 64)),
    ({"x": 2, "y": 2, "z": 2}, (131, 67)),
)


def shardings(mesh: sw.Mesh) -> list[sw.Sharding]:
    """Return all shardings of a matrix, in which an ordered subset of the axes splits each
    dimension."""
    texts = []
    for count in range(len(mesh.names) + 1):
        for names in itertools.permutations(mesh.names, count):
            for cut in range(count + 1):
                sides = (names[:cut], names[cut:])
                dims = ("{" + ", ".join(f'"{n}"' for n in side) + "}" for side in sides)
                texts.append(f"[{', '.join(dims)}]")
    return [mesh.sharding(text) for text in texts]


def main() -> None:
    table = Table(title="All ordered pairs of shardings of a matrix, direct plans")
    for column in ("mesh", "shape", "pairs", "received / bound", "sent / bound: mean", "worst"):
        table.add_column(column, justify="right")
    for axes, shape in CASES:
        mesh = sw.Mesh(axes)
        received, sent = [], []
        for source, target in itertools.product(shardings(mesh), repeat=2):
            reshard = sw.Reshard(shape=shape, dtype="float32", source=source, target=target)
            moved = sw.plan(reshard).traffic
            if moved.bound_sent_max:
                received.append(moved.received_max / moved.bound_received_max)
                sent.append(moved.sent_max / moved.bound_sent_max)
        table.add_row(
            "x".join(map(str, axes.values())),
            "x".join(map(str, shape)),
            str(len(sent)),
            f"{max(received):.3f}",
            f"{np.mean(sent):.3f}",
            f"{max(sent):.3f}",
        )
    Console().print(table)
