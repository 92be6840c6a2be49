"""The exact traffic of each form of the TPU kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass

from shardwright.codegen.backends.pallas_tpu.memory import View, default_view, padded_elements
from shardwright.codegen.backends.pallas_tpu.pieces import Pieces, Sums
from shardwright.ir.algebra.index import Integers
from shardwright.ir.exchange import Exchange
from shardwright.ir.layout import Layout


@dataclass(frozen=True)
class Figures:
    """Bytes and chunks over all devices, unless stated per device.

    `wire_bytes`: load of links, padding included; `wire_max`: into the busiest receiver;
    `exact_bytes`: without padding. `hbm_bytes`: reads and writes of HBM; `hbm_least`: the minimum,
    which reads every source tile once for each receiver and writes every target shard once, padding
    included. `relayout_bytes`: further copies, if XLA by default stores shards in another dimension
    order than the kernels use; a surrounding program may avoid them. `staging_bytes`, `vmem_bytes`:
    the maximum on a device.
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
        """Bytes on the wire over the exact bytes; 1 if nothing is sent."""
        return self.wire_bytes / self.exact_bytes if self.exact_bytes else 1.0

    @property
    def hbm_factor(self) -> float:
        """HBM traffic over the minimum."""
        return self.hbm_bytes / self.hbm_least


def width(pieces: Pieces, _axis: int) -> Integers:
    """Return the widths of pieces, whose product over all dimensions is a volume."""
    return pieces.width


def least_traffic(sums: Sums, itemsize: int) -> int:
    """Return bytes of reading every tile once and writing every target shard once.

    Shards are written whole: a short or empty one is returned as an array of the largest shard's
    shape with zero padding.
    """
    target = sums.exchange.target
    written = math.prod(target.local_shape) * target.mesh.size
    return itemsize * (sums.remote(width) + sums.local(width) + written)


def relayout(exchange: Exchange, itemsize: int, view: View) -> int:
    """Return the bytes of XLA's copies, over all devices, of shards stored by default in another
    dimension order than a view's."""
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
