"""Tensors of terms as JAX arrays, with an extra first dimension split by unreduced axes."""

from __future__ import annotations

import math
from dataclasses import replace

from shardwright.ir.exchange import Exchange, HolderRule
from shardwright.ir.layout import DimLayout, Layout
from shardwright.ir.plan import Plan


def with_terms(layout: Layout) -> Layout:
    """Return a layout whose hidden dimensions become the tensor's first dimension, the terms."""
    if not layout.hidden:
        return layout
    digits = tuple(digit for dim in layout.dims[: layout.hidden] for digit in dim.axis_digits)
    terms = DimLayout(math.prod(digit.size for digit in digits), digits)
    return replace(layout, dims=(terms, *layout.dims[layout.hidden :]), hidden=0)


def ends_of(plan: Plan) -> Exchange:
    """Return both ends of a plan as arrays, terms included; by themselves not an exchange."""
    reshard = plan.reshard
    return Exchange(
        with_terms(Layout.of(reshard.source, reshard.shape, reshard.source_split)),
        with_terms(Layout.of(reshard.target, reshard.shape, reshard.target_split)),
        HolderRule(),
    )
