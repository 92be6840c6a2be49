"""The explorer: a plan as one self-contained page, by device and by step.

The page includes the object of `plan --json` and data derived from it: each device's range of the
tensor before and after a step, and the bytes on each link of the topology.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from shardwright.codegen.hardware.presets import name_of, topology_of
from shardwright.codegen.moves.network.links import Flows
from shardwright.codegen.moves.plan import network_of
from shardwright.codegen.show.link_names import link_names
from shardwright.codegen.text.docstring import title
from shardwright.codegen.text.templates import render
from shardwright.ir.dtypes import DTYPES
from shardwright.ir.layout import Layout
from shardwright.ir.plan import ENUMERATED_DEVICES, Plan
from shardwright.ir.steps import ReduceStep, Step

MOST_TRANSFERS = 20_000
"""The maximum number of transfers that a page lists, about 3 MB. Larger plans are shown in
closed form."""


@dataclass(frozen=True)
class Limits:
    """The maximum numbers of devices, tiles and list rows that a page draws. `matrix`: the
    maximum number of devices in the table of bytes between devices."""

    devices: int = ENUMERATED_DEVICES
    tiles: int = 600
    rows: int = 60
    matrix: int = 20


@dataclass(frozen=True)
class ExplorerText:
    """Text for the template. `data` is JSON without `<`, so that it cannot contain markup."""

    name: str
    title: str
    data: str


def explorer(plan: Plan, name: str = "reshard", topology: str | None = None) -> str:
    """Return a plan's page as deterministic HTML.

    `topology`: hardware; if given, the page also shows the bytes on its links. Raises InputError if
    the topology has too few devices.
    """
    return explorer_of({name: plan}, name, title(plan), topology)


def explorer_of(
    plans: Mapping[str, Plan], name: str, heading: str, topology: str | None = None
) -> str:
    """Return a page that shows one of several plans at a time. `plans`: the plans by menu entry.
    Raise InputError for a topology with too few devices."""
    return page_of(explored(plans, topology), name, heading)


def page_of(found: list[dict[str, Any]], name: str, heading: str) -> str:
    """Return the page for the data that `explored` returns."""
    data = json.dumps(found).replace("<", "\\u003c")
    text = ExplorerText(plain(name), plain(heading), data)
    return render("explorer/page.html.jinja", text)


def explored(plans: Mapping[str, Plan], topology: str | None = None) -> list[dict[str, Any]]:
    """Return the page's data for each plan. "plan" holds the object that `plan --json` prints."""
    left, found = MOST_TRANSFERS, []
    for name, plan in plans.items():
        count = _transfers(plan) if plan.devices <= ENUMERATED_DEVICES else left + 1
        listed = count <= left
        left -= count if listed else 0
        found.append({"name": name, **_explored(plan, topology, listed=listed)})
    return found


def _explored(plan: Plan, topology: str | None, *, listed: bool) -> dict[str, Any]:
    return {
        "plan": plan.to_dict(transfers=listed),
        "itemsize": DTYPES[plan.reshard.dtype],
        "steps": [_sides(step) for step in plan.listed()],
        "links": _links(plan, topology) if listed and topology is not None else None,
        "limits": asdict(Limits()),
    }


def _transfers(plan: Plan) -> int:
    return sum(len(phase.transfers) for step in plan.listed() for phase in step.phases())


def _sides(step: Step) -> dict[str, Any]:
    if isinstance(step, ReduceStep):
        before, after = step.reduction.before, step.reduction.after
    else:
        before, after = step.exchange.source, step.exchange.target
    return {"before": _side(before), "after": _side(after)}


def _side(layout: Layout) -> dict[str, Any]:
    """Return a layout's mesh, and the range of the tensor at each position; no ranges if there are
    too many devices to draw."""
    mesh = layout.mesh
    drawn = mesh.size <= Limits().devices
    return {
        "axes": [list(axis) for axis in mesh.axes],
        "device_ids": list(mesh.device_ids) if drawn else [],
        "devices": mesh.size,
        "shards": _shards(layout) if drawn else [],
    }


def _shards(layout: Layout) -> list[list[list[int]]]:
    position = np.arange(layout.mesh.size, dtype=np.int64)
    ranges = []
    for dim in layout.dims[layout.hidden :]:
        index = dim.index(position) + 0 * position
        low, high = (ends[index] for ends in dim.intervals)
        ranges.append(np.stack([low, high], axis=1))
    shape = (position.size, 0, 2)
    found: list[list[list[int]]] = (
        np.stack(ranges, axis=1) if ranges else np.empty(shape, np.int64)
    ).tolist()
    return found


def _links(plan: Plan, topology: str) -> dict[str, Any]:
    itemsize = DTYPES[plan.reshard.dtype]
    flows = [_flows(step, itemsize) for step in plan.listed()]
    return {"topology": name_of(topology_of(topology)), "steps": link_rows(plan, topology, flows)}


def link_rows(
    plan: Plan, topology: str, steps: Iterable[Iterable[Flows]]
) -> list[list[tuple[str, float]]]:
    """Return, for each step, the names of the links in use with their bytes, busiest first."""
    network = network_of(plan.reshard, topology)
    names = link_names(network.topology, network.devices)
    found = []
    for flows in steps:
        carried = network.total(flows).nbytes
        busy = [(names[link], float(carried[link])) for link in np.flatnonzero(carried)]
        found.append(sorted(busy, key=lambda each: (-each[1], each[0])))
    return found


def _flows(step: Step, itemsize: int) -> Iterator[Flows]:
    for phase in step.phases():
        moved = phase.transfers
        apart = moved.sender != moved.receiver
        nbytes = moved.elements[apart].astype(np.float64) * itemsize
        yield Flows(moved.sender[apart], moved.receiver[apart], nbytes)


def plain(text: str) -> str:
    """Return text that cannot contain markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;")
