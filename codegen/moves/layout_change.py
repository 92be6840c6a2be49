"""A change of the layout of a value: a step of a program's communication."""

from __future__ import annotations

from dataclasses import dataclass

from shardwright.codegen.ops.layout import LocalLayout, Names

COLLECTIVES = {"exchange": "all_to_all", "blocks": "all_to_all", "rounds": "permute"}
"""The collective behind each kind of change that is not named after it."""


@dataclass(frozen=True)
class LayoutChange:
    """One change of a layout.

    `slice` and `mask` are local: a device keeps its part of a dimension, or turns the value into
    terms of a sum (the value at the first position along `axes`, zero elsewhere). `all_gather`,
    `all_to_all`, `all_reduce`, `reduce_scatter` and `permute` are collectives over `axes`;
    `exchange` is an all-to-all that gathers or splits several dimensions. `blocks` and `rounds` are
    direct exchanges, by an all-to-all or by permutes. `dims`: the dimension that is gathered,
    sliced or scattered; for an `all_to_all` the gathered one, then the split one; empty otherwise.
    `inside`: whether the change belongs to a local form and fetches part of the value along the
    dimension `dims`.
    """

    kind: str
    axes: Names
    dims: tuple[int, ...]
    layout: LocalLayout  # the layout after the change
    received: int  # bytes that each device receives
    inside: bool = False
    own: bool = False  # whether the user wrote it, in a manual computation
    rounds: int = 1  # the number of collectives, which run one after another

    @property
    def collective(self) -> str:
        return COLLECTIVES.get(self.kind, self.kind)

    @property
    def is_direct(self) -> bool:
        """Whether devices receive exactly the bytes that they lack, as blocks of shards."""
        return self.kind in ("blocks", "rounds")
