"""Partial sums as JAX arrays: an extra first dimension, split by the unreduced axes, numbers the
terms."""

from __future__ import annotations

import math
from dataclasses import replace

from shardwright.ir.exchange import Exchange, HolderRule
from shardwright.ir.layout import DimLayout, Layout
from shardwright.ir.plan import Plan


def with_terms(layout: Layout) -> Layout:
    """Return a layout with its hidden dimensions merged into a first tensor dimension, the
    terms."""
    if not layout.hidden:
        return layout
    digits = tuple(digit for dim in layout.dims[: layout.hidden] for digit in dim.axis_digits)
    terms = DimLayout(math.prod(digit.size for digit in digits), digits)
    return replace(layout, dims=(terms, *layout.dims[layout.hidden :]), hidden=0)


def ends_of(plan: Plan) -> Exchange:
    """Return the source and target layouts of a plan's arrays, including terms. The holder rule is
    a placeholder, so the result is not an executable exchange."""
    reshard = plan.reshard
    return Exchange(
        with_terms(Layout.of(reshard.source, reshard.shape, reshard.source_split)),
        with_terms(Layout.of(reshard.target, reshard.shape, reshard.target_split)),
        HolderRule(),
    )
