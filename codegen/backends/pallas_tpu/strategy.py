"""The forms of the TPU kernel, and what each costs; the least is taken.

TPU memory is tiled, and a DMA window must start and end at multiples of the tiling.

    direct   every tile does: it goes by DMA from shard to shard
    windows  tiles start and end anywhere: chunks of them pass through VMEM, where they are shifted
    slots    tiles are thin: XLA packs each densely into a slot, and unpacks it
    routed   they go from device to device, since not all may be sent directly (`routed/`)
    spread   source shards do

The first three are where every device sends directly to its receivers, the others where some do
not. The first two exist for each choice of the two dimensions over which memory is tiled
(`memory.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from shardwright.codegen.backends.pallas_tpu.direct import Direct
from shardwright.codegen.backends.pallas_tpu.figures import Figures, relayout
from shardwright.codegen.backends.pallas_tpu.memory import views
from shardwright.codegen.backends.pallas_tpu.pieces import Sums
from shardwright.codegen.backends.pallas_tpu.routed.grid import Grid
from shardwright.codegen.backends.pallas_tpu.routed.strategy import Routed
from shardwright.codegen.backends.pallas_tpu.slots import Slots
from shardwright.codegen.backends.pallas_tpu.terms import moved
from shardwright.codegen.backends.pallas_tpu.windows import Windows
from shardwright.codegen.hardware.presets import topology_of
from shardwright.codegen.hardware.torus import Torus
from shardwright.ir.dtypes import DTYPES
from shardwright.ir.exchange import Exchange
from shardwright.ir.plan import DirectPlan

Form = Direct | Windows | Slots | Routed
WHAT = {
    "direct": "tiles go by DMA from shard to shard",
    "windows": "chunks of tiles are shifted in VMEM, and put together from a staging area",
    "slots": "XLA packs thin tiles densely into slots, and unpacks them",
    "routed": "tiles go from device to device, in slots that XLA packs and unpacks",
    "spread": "source shards go from device to device, and XLA takes tiles out of them",
}
"""What readers are told of each."""

HBM_OVER_LINKS = 8
"""How many bytes HBM moves while links carry one into a chip: 819 GB/s over two links of 50 on v5e,
2,765 over three of 100 on v5p. That is half of a chip's links: small slices have no more, and a
message over several hops takes several. Source: `codegen/hardware/chips.py`."""
CHUNK_BYTES = 1 << 13
"""What a chunk costs beside its bytes, as bytes of HBM: its DMAs take some 100 ns to start, most of
which pass while others are under way. An estimate; nothing here has been timed on a TPU."""


@dataclass(frozen=True)
class FormChoice:
    """A form with its figures."""

    form: Form
    figures: Figures

    @property
    def cost(self) -> int:
        """A measure of time: bytes of HBM traffic that take as long."""
        figures = self.figures
        moved = figures.hbm_bytes + figures.relayout_bytes
        return HBM_OVER_LINKS * figures.wire_bytes + moved + CHUNK_BYTES * figures.chunks


def grid_of(plan: DirectPlan) -> Grid | None:
    """Return the devices of a plan on the topology that it is for; None where that says of no
    restriction to powers of two."""
    topology = None if plan.prediction is None else topology_of(plan.prediction.topology)
    if not isinstance(topology, Torus) or not topology.powers_of_two:
        return None
    return Grid.of(moved(plan), topology)


def choices(plan: DirectPlan) -> tuple[FormChoice, ...]:
    """Return every form that can move the tiles of a plan."""
    itemsize = DTYPES[plan.reshard.dtype]
    return tuple(candidates(moved(plan), itemsize, plan.once(grid_of)))


def cheapest(every: tuple[FormChoice, ...], like: Form | None = None) -> FormChoice:
    """Return the form of least cost; of equal ones the first in the order of the table above, and
    the array's own order of dimensions before others. `like`: only forms such as this, if there
    are."""
    alike = [choice for choice in every if like and _kind(choice.form) == _kind(like)]
    return min(alike or every, key=lambda choice: choice.cost)


def _kind(form: Form) -> tuple[object, ...]:
    if not isinstance(form, Routed):
        return form.name, form.view
    return form.name, form.view, form.slot.order, form.slot.dense, form.slot.sized, form.is_padded


def candidates(exchange: Exchange, itemsize: int, grid: Grid | None = None) -> Iterator[FormChoice]:
    """Yield every form that can move the tiles of an exchange; `grid`: where not all send
    directly to all. 64-bit elements travel as two of 32."""
    sums = exchange.once(Sums)
    if grid is not None and not grid.is_direct(*grid.pairs(exchange)):
        for form in Routed.every(exchange, itemsize, grid):
            yield FormChoice(form, form.figures(sums))
        return
    for view in views(len(exchange.dims)):
        copied = relayout(exchange, itemsize, view)
        direct = Direct.of(exchange, itemsize, view)
        if direct is not None:
            yield FormChoice(direct, replace(direct.figures(sums), relayout_bytes=copied))
        windows = Windows.of(sums, itemsize, view)
        yield FormChoice(windows, replace(windows.figures(sums), relayout_bytes=copied))
    slots = Slots.of(exchange, itemsize)
    if slots.is_small:
        yield FormChoice(slots, slots.figures(sums))


def form_facts(choice: FormChoice, terms: int = 1) -> tuple[str, ...]:
    """Return the lines of a module's docstring; `terms`: of a value, which XLA reduces where they
    are several."""
    figures = choice.figures
    hops = ", every hop counted" if isinstance(choice.form, Routed) else ""
    lines = [
        f"Form: {choice.form.name}; {WHAT[choice.form.name]}.",
        f"On the wire {figures.wire_padding:.3f} times the exact bytes{hops}, "
        f"{figures.wire_max:,} into the busiest device.",
        f"HBM reads and writes {figures.hbm_factor:.2f} times the least possible.",
    ]
    if isinstance(choice.form, Routed):
        lines += _route_facts(choice.form)
    if figures.relayout_bytes:
        more = figures.relayout_bytes / figures.hbm_least
        lines.append(
            f"Where shards lie in memory as XLA lays them out by default: {more:.2f} times more."
        )
    if choice.form.name == "direct" and figures.wire_bytes and terms == 1:
        lines.append("Where the result leaves the program XLA copies it once more.")
    if terms > 1:
        lines.append(f"Then XLA reduces: it reads {terms} terms of a target shard, and writes it.")
    if figures.staging_bytes or figures.vmem_bytes:
        lines.append(
            f"Staging {figures.staging_bytes:,} bytes of HBM, {figures.vmem_bytes:,} of VMEM."
        )
    return tuple(lines)


def _route_facts(form: Routed) -> list[str]:
    schedule = form.schedule
    lines = [
        f"Not all receivers are in reach of a sender: in {len(schedule.rounds)} rounds a device "
        f"sends on {len(schedule.moves)} slots,",
        f"of at most {form.itemsize * form.slot.elements:,} bytes, and gets of "
        f"{len(schedule.offsets)} devices what it wants.",
    ]
    return lines if form.spreads else [*lines, *_example(form)]


def _example(form: Routed) -> Iterator[str]:
    """Yield the way of a piece that makes most hops."""
    schedule = form.schedule
    far = max(range(len(schedule.starts)), key=lambda number: len(schedule.path(number)))
    yield f"What goes to the device {schedule.offsets[far]} farther on, digit by digit:"
    for hop, move in schedule.path(far):
        yield (
            f"    from slot {move.here} to slot {move.there} of the device whose digit of stride "
            f"{hop.stride} is {hop.by} higher"
        )
