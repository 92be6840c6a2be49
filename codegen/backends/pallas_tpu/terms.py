"""Terms in a TPU module: a kernel brings a device all terms of its target shard, and XLA reduces
them.

To a kernel, terms are the first dimension of the tensor: a source shard has one, a target shard
all. So every kernel form can move them, with the same proofs. Floats are then reduced in the order
of the terms' numbers, equally on every device.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from shardwright.codegen.backends.jax_terms import ends_of
from shardwright.codegen.planner.holders import Loads
from shardwright.codegen.text.context import as_vectors
from shardwright.codegen.text.index_functions import IndexFunction, box_functions
from shardwright.codegen.text.python_text import called, neutral_text
from shardwright.ir.exchange import Exchange
from shardwright.ir.layout import DimLayout, Layout
from shardwright.ir.plan import DirectPlan, Plan

SIDES = ("source", "target")
CARRIER = "_CARRIER"
"""The constant for the program that brings terms to a device; as long as `_PROGRAM`, whose place it
takes."""


@dataclass(frozen=True)
class KernelEnds:
    """The module's names for both sides of its kernel's exchange, their boxes, and the object that
    runs the kernel. `second`: whether an earlier kernel has taken the default names; `part`: the
    side with parts of target shards, `source shard` or `target shard`."""

    source: str = "_SOURCE"
    target: str = "_TARGET"
    source_box: str = "source_box"
    target_box: str = "target_box"
    program: str = "_PROGRAM"
    second: bool = False
    part: str = ""

    def said(self, text: str) -> str:
        """Return a text about both sides in this module's terms."""
        return text.replace(self.part, "part") if self.part else text

    def own(self, name: str) -> str:
        """Return the module's name for another object of this kernel."""
        if not self.second:
            return name
        if name.startswith("_"):
            return f"_part{name}"
        return f"PART_{name}" if name.isupper() else f"part_{name}"

    def named(self, functions: Iterable[IndexFunction]) -> tuple[IndexFunction, ...]:
        """Return index functions under these names."""
        return tuple(map(self._named, functions))

    def _named(self, function: IndexFunction) -> IndexFunction:
        boxes = {"source_box": self.source_box, "target_box": self.target_box}
        name, doc = boxes.get(function.name, self.own(function.name)), function.doc
        if function.name in boxes and name.endswith("_terms"):
            side = function.name.removesuffix("_box")
            doc = "Ranges (low, high) of terms, then of the tensor, "
            doc += f"of the {side} shard at a position."
        return replace(function, name=name, doc=self.said(doc))


PLAIN = KernelEnds()


def moved(plan: DirectPlan) -> Exchange:
    """Return a kernel's exchange: a plan's, with terms as tensor dimensions; for a scalar without
    terms, that of a vector of one element."""
    exchange = plan.exchange
    return exchange.once(_stacked) if exchange.source.hidden else as_vectors(exchange)


def _stacked(exchange: Exchange) -> Exchange:
    # Memory is tiled over at least two dimensions, not counting that of the terms.
    more = max(2 - (len(exchange.dims) - exchange.source.hidden), 0)
    source, target = (_shown(layout, more) for layout in (exchange.source, exchange.target))
    return replace(exchange, source=source, target=target, operator=None)


def _shown(layout: Layout, more: int) -> Layout:
    return replace(layout, dims=(*layout.dims, *[DimLayout(1, ())] * more), hidden=0)


def has_terms(plan: DirectPlan) -> bool:
    """Return whether a side of a plan has terms."""
    return any(side.unreduced for side in (plan.reshard.source, plan.reshard.target))


def keeps_some(exchange: Exchange) -> bool:
    """Return whether any device holds a part of its target shard's sources."""
    loads = Loads(exchange.source, exchange.target, exchange)
    return bool((loads.held_widths > 0).all(axis=1).any())


@dataclass(frozen=True)
class TermsText:
    """A module's text on terms, besides its kernel."""

    plan: DirectPlan

    @cached_property
    def functions(self) -> tuple[IndexFunction, ...]:
        """The boxes of the module's argument and result arrays."""
        return box_functions(as_vectors(ends_of(self.plan)))

    @cached_property
    def ends(self) -> KernelEnds:
        """Names for both ends of the kernel; boxes of the arrays are reused where equal."""
        same = zip(SIDES, self.functions, box_functions(moved(self.plan)), strict=True)
        boxes = [
            own.name if own.results == other.results else f"{side}_terms"
            for side, own, other in same
        ]
        return KernelEnds("SOURCE_TERMS", "TARGET_TERMS", boxes[0], boxes[1], CARRIER)

    def with_boxes(self, functions: tuple[IndexFunction, ...]) -> tuple[IndexFunction, ...]:
        """Return the functions of the arrays, then a kernel's."""
        own = [function.name for function in self.functions]
        return (*self.functions, *(each for each in functions if each.name not in own))

    @property
    def side_lines(self) -> list[str]:
        """The constants of both sides from the kernels' point of view."""
        exchange, ends, hidden = moved(self.plan), self.ends, self.plan.exchange.source.hidden
        new = self.plan.exchange.new
        return [
            "# As kernels have them: of a value a source shard has a term, a target all.",
            *stacked_lines("SOURCE", ends.source, ends.source_box, exchange.source, hidden),
            *stacked_lines(
                "TARGET", ends.target, ends.target_box, exchange.target, hidden, new=new
            ),
        ]

    def made(self, kernel: Iterable[str]) -> list[str]:
        """Return the lines of the program: the kernel's, and the object around it."""
        given = [CARRIER, "SOURCE_TERMS", "TARGET_TERMS", terms_text(self.plan)]
        given += ["reduces=True"] if self.plan.exchange.operator else []
        reshard, operator = self.plan.reshard, self.plan.reshard.target.operator
        if self.plan.exchange.new and operator != "sum":
            given.append(f"empty={neutral_text(reshard.dtype, operator)}")
        return [*kernel, *called("_PROGRAM = ReducedTerms", given)]


def terms_text(plan: Plan) -> str:
    """Return a module's statements about its terms."""
    reshard = plan.reshard
    operators = [f'"{side.operator}"' for side in (reshard.source, reshard.target)]
    return (
        f"Terms({', '.join([*operators, 'transposed=True'] if reshard.transposed else operators)})"
    )


def stacked_lines(
    side: str, name: str, box: str, layout: Layout, hidden: int, run_on: str = "", new: int = 0
) -> list[str]:
    """Return the constant of a side from the kernels' point of view; `side`: whose devices it has;
    `run_on`: the side whose program runs the kernel, if not its own; `new`: the number of term
    dimensions with a single value."""
    given = [f"{side}_IDS", box, repr(layout.local_shape), f"{run_on or side}_AXES"]
    given += [str(hidden)] if hidden else []
    return called(f"{name} = Stacked", [*given, *([f"new={new}"] if new else [])])
