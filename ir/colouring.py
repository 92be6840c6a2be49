"""Colour the edges of a bipartite graph with the least number of colours (König): the rounds of
transfers, built transfer by transfer along alternating paths."""

from __future__ import annotations

import numpy as np

from shardwright.ir.arrays import Integers


def colouring(sender: Integers, receiver: Integers, elements: Integers, colours: int) -> Integers:
    """Return the round of each transfer, such that no device sends or receives twice in a round.

    `elements`: the size of each transfer; larger transfers are coloured first. `colours`: the
    number of rounds, at least the number of transfers of the busiest sender or receiver.
    """
    ends = np.unique(sender, return_inverse=True)[1], np.unique(receiver, return_inverse=True)[1]
    taken = [np.full((int(end.max()) + 1, colours), -1, dtype=np.int64) for end in ends]
    colour = np.full(sender.size, -1, dtype=np.int64)
    places = list(zip(ends[0].tolist(), ends[1].tolist(), strict=True))
    for edge in np.argsort(-elements, kind="stable").tolist():
        a, b = places[edge]
        free = [int(np.argmin(row[node] >= 0)) for row, node in zip(taken, (a, b), strict=True)]
        if taken[1][b, free[0]] >= 0:
            _flip(taken, colour, places, b, free[0], free[1])
        colour[edge] = free[0]
        taken[0][a, free[0]] = taken[1][b, free[0]] = edge
    return colour


def _flip(
    taken: list[Integers],
    colour: Integers,
    places: list[tuple[int, int]],
    node: int,
    one: int,
    other: int,
) -> None:
    """Swap two colours along the path that begins at receiver `node`, which frees `one` there.

    The path enters senders along edges of colour `one`, so it never reaches the sender at which
    `one` is free.
    """
    path, side = [], 1
    edge = int(taken[side][node, one])
    while edge >= 0:
        path.append(edge)
        side = 1 - side
        node = places[edge][side]
        edge = int(taken[side][node, other if len(path) % 2 else one])
    for edge in path:
        for end in (0, 1):
            taken[end][places[edge][end], colour[edge]] = -1
    for edge in path:
        colour[edge] = other if colour[edge] == one else one
        for end in (0, 1):
            taken[end][places[edge][end], colour[edge]] = edge
