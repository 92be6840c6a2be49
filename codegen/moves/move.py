"""A move: one edge of the searches for the steps of a reshard and of a program."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeAlias, TypeVar

from shardwright.codegen.ops.layout import LocalLayout

Axis = TypeVar("Axis")
After = TypeVar("After")


class Move(NamedTuple, Generic[Axis, After]):
    """One step to the layout `after`. `axes` are digits of mesh positions in a reshard, names of
    pieces of axes in a program.

    `slice` and `replicated_to_unreduced` are local: a device keeps its part of a dimension, or
    turns the value into terms of a sum (the value at the first position along the axes, zero
    elsewhere). `all_gather`, `all_to_all`, `all_reduce`, `reduce_scatter` and `permute` are
    collectives. In an `exchange`, devices receive exactly the bytes that they lack, as blocks of
    shards.
    """

    op: str
    axes: tuple[Axis, ...]
    after: After
    # in a program, the dimension that is gathered, sliced or scattered; for an all-to-all, the one
    # that is gathered, then the one that is split; empty if there are several
    dims: tuple[int, ...] = ()
    received: int = 0  # in a program, the bytes that each device receives
    rounds: int = 0  # of permutes in an exchange, 0 if it is one all-to-all

    @property
    def collective(self) -> str:
        """The operation that performs the move: for an exchange, a collective."""
        if self.op != "exchange":
            return self.op
        return "permute" if self.rounds else "all_to_all"

    @property
    def collectives(self) -> int:
        """The number of collectives, which run one after another."""
        return max(self.rounds, 1)


LayoutMove: TypeAlias = Move[str, LocalLayout]
