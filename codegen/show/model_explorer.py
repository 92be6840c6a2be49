"""The explorer of a model: its tensors, devices, links and buckets on one self-contained page.

The page contains every name once, and the moves of each kind of tensor. From them, its script
computes the senders and receivers of a tensor, so the page of even the largest model takes only a
few megabytes.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from functools import cache
from os.path import commonprefix
from typing import Any

import numpy as np

from shardwright.codegen.show.explorer import ExplorerText, Limits, plain
from shardwright.codegen.text.templates import render
from shardwright.ir.dtypes import itemsize
from shardwright.ir.kind_relays import OWN, KindRelays
from shardwright.ir.model_flow import ModelFlows, Share
from shardwright.ir.model_plan import ModelPlan

MODEL_PAGE = "explorer.html"
"""The name of the page's file in a bundle."""


def model_explorer(plan: ModelPlan, name: str) -> str:
    """Return the page of a model as deterministic HTML."""
    title = str(plan).splitlines()[0]
    data = json.dumps(model_data(plan), separators=(",", ":")).replace("<", "\\u003c")
    return render("explorer/weights.html.jinja", ExplorerText(plain(name), plain(title), data))


def model_data(plan: ModelPlan) -> dict[str, Any]:
    """Return the page's data: the object of `plan --json` under "plan", and rows for each kind,
    member and bucket."""
    return {
        "plan": plan.to_dict(),
        "kinds": [
            _moves(relays, itemsize(kind.tensor.dtype), kind.tensor.bytes)
            for kind, relays in zip(plan.kinds.kinds, plan.relays, strict=True)
        ],
        "places": [list(place.devices) for place in plan.kinds.places],
        "members": _members(plan),
        "ends": list(plan.buckets.ends),
        "buckets": _buckets(plan),
        "limits": {"rows": Limits().rows, "devices": Limits().devices},
    }


def _moves(relays: KindRelays, size: int, whole: int) -> dict[str, Any]:
    moved: Counter[tuple[int, int]] = Counter()
    for relay in relays.relays:
        if relay.sender != OWN:
            moved[relay.sender, relay.receiver] += relay.elements * size
    return {
        "bytes": whole,
        "senders": list(map(list, relays.senders)),
        "receivers": list(map(list, relays.receivers)),
        "moves": [[*ends, count] for ends, count in sorted(moved.items())],
    }


def _members(plan: ModelPlan) -> list[list[Any]]:
    """Return a row for each member, sorted by name: the name, kind, places of both sides, turn,
    index of the first piece, number of pieces, and the buffers of both sides.

    A name omits the prefix that it shares with the previous name; a buffer omits the prefix that it
    shares with its tensor.
    """
    pieces = plan.buckets.pieces
    firsts = np.cumsum([0, *pieces[:-1]]).tolist()
    rows, before = [], ""
    for member, first, count in sorted(
        zip(plan.kinds.members, firsts, pieces, strict=True), key=lambda row: row[0][1:]
    ):
        rows.append(
            [
                *_after(before, member.tensor),
                *(member.kind, member.source, member.target, member.turn, first, count),
                *_after(member.tensor, member.source_buffer),
                *_after(member.tensor, member.target_buffer),
            ]
        )
        before = member.tensor
    return rows


def _after(before: str, name: str) -> tuple[int, str]:
    """Return the length of the common prefix of `before` and `name`, in UTF-16 units as in
    JavaScript, and the rest of `name`."""
    shared = commonprefix([before, name])  # noqa: RUF071 (names are no paths)
    return len(shared.encode("utf-16-le")) // 2, name[len(shared) :]


def _buckets(plan: ModelPlan) -> list[list[int]]:
    """Return, for each bucket, the total bytes received, and the bytes that the busiest device
    sends and receives together."""
    index = {device: number for number, device in enumerate(plan.devices)}
    at = [np.array([index[device] for device in place.devices]) for place in plan.kinds.places]
    ends = plan.buckets.ends
    loads = np.zeros((len(ends), 2, len(index)), dtype=np.int64)
    flow = cache(ModelFlows(plan.kinds.kinds, plan.relays).of)
    item = 0
    for member, count in zip(plan.kinds.members, plan.buckets.pieces, strict=True):
        for piece in range(count):
            sent, received = flow(Share(member.kind, member.turn, piece, count))
            load = loads[bisect_right(ends, item)]
            load[0, at[member.source]] += sent
            load[1, at[member.target]] += received
            item += 1
    return [[int(load[1].sum()), int(load.sum(axis=0).max())] for load in loads]
