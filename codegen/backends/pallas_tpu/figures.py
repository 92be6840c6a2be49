"""The exact bytes that each form of the TPU kernel moves."""

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
    """Bytes and chunks over all devices, except where a device's are named.

    `wire_bytes`: what links carry, padding included; `wire_max`: into the busiest receiver;
    `exact_bytes`: what they would carry without padding. `hbm_bytes`: reads and writes of HBM;
    `hbm_least`: those of reading every source tile once for each device that gets it and of
    writing every target shard once, padding too. `relayout_bytes`: copies beside it, where XLA
    keeps shards in another order of dimensions by default than the kernels take; what is around a
    reshard in a program may do without. `staging_bytes`, `vmem_bytes`: a device's, at most.
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
        """HBM traffic over the least possible."""
        return self.hbm_bytes / self.hbm_least


def width(pieces: Pieces, _axis: int) -> Integers:
    """Return the factor of volume."""
    return pieces.width


def least_traffic(sums: Sums, itemsize: int) -> int:
    """Return bytes of reading every tile once and writing every target shard once.

    A shard is written whole: one that is short or empty is returned as an array of the largest
    shard's shape, whose padding is zero.
    """
    target = sums.exchange.target
    written = math.prod(target.local_shape) * target.mesh.size
    return itemsize * (sums.remote(width) + sums.local(width) + written)


def relayout(exchange: Exchange, itemsize: int, view: View) -> int:
    """Return bytes of the copies, over all devices, that XLA makes of shards which it keeps by
    default in another order of dimensions than a view's."""
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
