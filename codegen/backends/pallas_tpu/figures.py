"""The exact traffic of each form of the TPU kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass

from shardwright.codegen.backends.pallas_tpu.memory import View, default_view, padded_elements
from shardwright.codegen.backends.pallas_tpu.pieces import Pieces, Sums
from shardwright.ir.algebra.index import Integers
from shardwright.ir.exchange import Exchange
from shardwright.ir.layout import Layout

CHUNK_SECONDS = 1e-8
"""The fixed cost of a chunk, in seconds. Its DMAs take some 100 ns to start, mostly hidden behind
others in flight. Source: an estimate, not timed on a TPU."""


@dataclass(frozen=True)
class Figures:
    """The traffic and memory use of a form, in bytes. Figures are totals over all devices unless
    stated otherwise.

    `wire_bytes`: bytes sent over links, including padding; `wire_max`: bytes received by the
    busiest device; `exact_bytes`: bytes sent, without padding. `hbm_bytes`: bytes read from and
    written to HBM; `hbm_least`: the minimum HBM traffic, in which every source tile is read once
    for each receiver and every target shard is written once, including padding. `staging_bytes`,
    `vmem_bytes`: the largest staging area and the largest VMEM use of any device. `chunks`: the
    number of chunks and blocks that kernels copy. `relayout_bytes`: bytes of the extra copies that
    XLA makes if its default dimension order for shards differs from the kernels' order; a
    surrounding program may avoid them.
    """

    wire_bytes: int
    wire_max: int
    exact_bytes: int
    hbm_bytes: int
    hbm_least: int
    staging_bytes: int = 0
    vmem_bytes: int = 0
    chunks: int = 0
    relayout_bytes: int = 0

    @property
    def wire_padding(self) -> float:
        """The ratio of the bytes on the wire to the exact bytes, or 1 if nothing is sent."""
        return self.wire_bytes / self.exact_bytes if self.exact_bytes else 1.0

    @property
    def hbm_factor(self) -> float:
        return self.hbm_bytes / self.hbm_least

    def starts(self, devices: int) -> float:
        """Return the seconds that a device takes to start the copies of its chunks."""
        return CHUNK_SECONDS * self.chunks / devices


def width(pieces: Pieces, _axis: int) -> Integers:
    """Return the widths of pieces along a dimension, for `Sums` of volumes."""
    return pieces.width


def least_traffic(sums: Sums, itemsize: int) -> int:
    """Return the bytes to read every tile once and to write every target shard once.

    Every target shard counts as the largest one, since shorter or empty shards are padded to that
    shape.
    """
    target = sums.exchange.target
    written = math.prod(target.local_shape) * target.mesh.size
    return itemsize * (sums.remote(width) + sums.local(width) + written)


def relayout(exchange: Exchange, itemsize: int, view: View) -> int:
    """Return the bytes, over all devices, of the copies that XLA makes of shards whose default
    dimension order differs from `view`."""
    return sum(
        _copied(layout, itemsize, view) * layout.mesh.size
        for layout in (exchange.source, exchange.target)
    )


def _copied(layout: Layout, itemsize: int, view: View) -> int:
    shape = layout.local_shape
    usual = default_view(shape, itemsize)
    if usual == view:
        return 0
    return itemsize * sum(padded_elements(shape, order, itemsize) for order in (usual, view))
