"""Terms in a TPU module: a kernel sends each device all terms of its target shard, and XLA reduces
them.

To a kernel, terms are a leading dimension of the tensor: a source shard has one term of each value,
a target shard has all of them. So every kernel form can move them, with the same proofs. Floats are
reduced in the order of the terms' numbers, so replicas are equal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from shardwright.codegen.backends.jax_terms import ends_of
from shardwright.codegen.moves.holders import Loads
from shardwright.codegen.text.context import as_vectors
from shardwright.codegen.text.index_functions import IndexFunction, box_functions
from shardwright.codegen.text.python_text import called, neutral_text
from shardwright.ir.exchange import Exchange
from shardwright.ir.layout import DimLayout, Layout
from shardwright.ir.plan import DirectPlan, Plan

SIDES = ("source", "target")
CARRIER = "_CARRIER"
"""The name of the module's constant for the program that moves terms. It is as long as `_PROGRAM`,
which it replaces, so that lines keep their length."""


@dataclass(frozen=True)
class KernelEnds:
    """The module's names for the source and target of a kernel's exchange, for the functions of
    their boxes, and for the object that runs the kernel. `second`: whether an earlier kernel
    already uses the default names; `part`: the phrase, "source shard" or "target shard", that this
    kernel's comments replace by "part"; "" for none."""

    source: str = "_SOURCE"
    target: str = "_TARGET"
    source_box: str = "source_box"
    target_box: str = "target_box"
    program: str = "_PROGRAM"
    second: bool = False
    part: str = ""

    def said(self, text: str) -> str:
        """Replace the phrase `part` in a text by "part"."""
        return text.replace(self.part, "part") if self.part else text

    def own(self, name: str) -> str:
        """Return the module's name for this kernel's constant or function whose default name is
        `name`."""
        if not self.second:
            return name
        if name.startswith("_"):
            return f"_part{name}"
        return f"PART_{name}" if name.isupper() else f"part_{name}"

    def named(self, functions: Iterable[IndexFunction]) -> tuple[IndexFunction, ...]:
        """Rename index functions, and reword their docstrings, for this kernel."""
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
    """Return the exchange that a plan's kernel performs: the plan's own, with terms as tensor
    dimensions. A scalar without terms becomes a vector of one element."""
    exchange = plan.exchange
    return exchange.once(_stacked) if exchange.source.hidden else as_vectors(exchange)


def _stacked(exchange: Exchange) -> Exchange:
    # Memory is tiled over two dimensions, and the dimension of terms must not be one of them.
    more = max(2 - (len(exchange.dims) - exchange.source.hidden), 0)
    source, target = (_shown(layout, more) for layout in (exchange.source, exchange.target))
    return replace(exchange, source=source, target=target, operator=None)


def _shown(layout: Layout, more: int) -> Layout:
    return replace(layout, dims=(*layout.dims, *[DimLayout(1, ())] * more), hidden=0)


def has_terms(plan: DirectPlan) -> bool:
    """Return whether the source or the target of a plan is unreduced."""
    return any(side.unreduced for side in (plan.reshard.source, plan.reshard.target))


def keeps_some(exchange: Exchange) -> bool:
    """Return whether any device already has a part of its own target shard."""
    loads = Loads(exchange.source, exchange.target, exchange)
    return bool((loads.held_widths > 0).all(axis=1).any())


@dataclass(frozen=True)
class TermsText:
    """The text that a module with terms has in addition to its kernel's."""

    plan: DirectPlan

    @cached_property
    def functions(self) -> tuple[IndexFunction, ...]:
        return box_functions(as_vectors(ends_of(self.plan)))

    @cached_property
    def ends(self) -> KernelEnds:
        """The names of the kernel's source and target. If a side's boxes equal those of the
        module's argument or result, it uses the same function."""
        same = zip(SIDES, self.functions, box_functions(moved(self.plan)), strict=True)
        boxes = [
            own.name if own.results == other.results else f"{side}_terms"
            for side, own, other in same
        ]
        return KernelEnds("SOURCE_TERMS", "TARGET_TERMS", boxes[0], boxes[1], CARRIER)

    def with_boxes(self, functions: tuple[IndexFunction, ...]) -> tuple[IndexFunction, ...]:
        """Return the index functions for the module's arrays, then those that the kernel adds."""
        own = [function.name for function in self.functions]
        return (*self.functions, *(each for each in functions if each.name not in own))

    @property
    def side_lines(self) -> list[str]:
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
        """Return the lines that construct the program: `kernel`, then the object that reduces the
        terms that the kernel moves."""
        given = [CARRIER, "SOURCE_TERMS", "TARGET_TERMS", terms_text(self.plan)]
        given += ["reduces=True"] if self.plan.exchange.operator else []
        reshard, operator = self.plan.reshard, self.plan.reshard.target.operator
        if self.plan.exchange.new and operator != "sum":
            given.append(f"empty={neutral_text(reshard.dtype, operator)}")
        return [*kernel, *called("_PROGRAM = ReducedTerms", given)]


def terms_text(plan: Plan) -> str:
    """Return the expression that describes a module's terms."""
    reshard = plan.reshard
    operators = [f'"{side.operator}"' for side in (reshard.source, reshard.target)]
    return (
        f"Terms({', '.join([*operators, 'transposed=True'] if reshard.transposed else operators)})"
    )


def stacked_lines(
    side: str, name: str, box: str, layout: Layout, hidden: int, run_on: str = "", new: int = 0
) -> list[str]:
    """Return the lines of the constant `name` that describes a side of a kernel whose boxes the
    function `box` returns.

    `side`: "SOURCE" or "TARGET", the mesh whose devices the side is on; `hidden`: the number of
    term dimensions; `run_on`: the side on whose mesh the kernel runs, by default `side`; `new`: the
    number of trailing term dimensions in which only the first term has the source's value.
    """
    given = [f"{side}_IDS", box, repr(layout.local_shape), f"{run_on or side}_AXES"]
    given += [str(hidden)] if hidden else []
    return called(f"{name} = Stacked", [*given, *([f"new={new}"] if new else [])])
