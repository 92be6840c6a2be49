"""A module of two kernels. The first sends each device all terms of one part of its target shard.
The second copies the reduced parts to the other replicas of that shard.

The two are ordinary kernels of separate plans; XLA reduces the terms between them. In the module,
the names of the second kernel's functions start with `part`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from shardwright.codegen.backends.jax_host import HostText
from shardwright.codegen.backends.jax_terms import ends_of
from shardwright.codegen.backends.pallas_tpu.form import Form
from shardwright.codegen.backends.pallas_tpu.kernel_text import KernelRequest, KernelText
from shardwright.codegen.backends.pallas_tpu.ring import RingForm, ring_facts
from shardwright.codegen.backends.pallas_tpu.ring_text import ring_text
from shardwright.codegen.backends.pallas_tpu.strategy import (
    FormChoice,
    choices,
    form_facts,
    preferred,
)
from shardwright.codegen.backends.pallas_tpu.terms import (
    CARRIER,
    KernelEnds,
    has_terms,
    keeps_some,
    moved,
    stacked_lines,
    terms_text,
)
from shardwright.codegen.moves.reduce import halves_of
from shardwright.codegen.text.context import as_vectors
from shardwright.codegen.text.docstring import part_lines, reduced_lines, side_lines, traffic_lines
from shardwright.codegen.text.index_functions import IndexFunction, box_functions
from shardwright.codegen.text.python_text import called, wrapped
from shardwright.codegen.text.table import part_table
from shardwright.ir.exchange import Exchange, HolderRule
from shardwright.ir.plan import DirectPlan, Plan, SteppedPlan, direct_of

MORE_IDS = 2
"""The offset of the second kernel's collective id from the first's. A bundle has four ids: two for
its kernels, and two for the kernels that move cotangents back."""


def exchanges_of(plan: Plan) -> tuple[DirectPlan, ...]:
    """Return the exchanges of a plan in order, each as a separate plan.

    Raises InputError for a plan that is not direct.
    """
    if isinstance(plan, SteppedPlan) and plan.strategy == "direct":
        return plan.once(halves_of)
    return (direct_of(plan),)


def choice_of(plan: DirectPlan) -> FormChoice:
    """Return the form of a plan's kernel. Raises InternalError if its proof fails."""
    return checked(plan)


def checked(plan: DirectPlan, like: Form | None = None) -> FormChoice:
    """Return the form of a plan's kernel, of the same kind as `like` if there is one.
    Raises InternalError if its proof fails."""
    choice = preferred(plan.once(choices), like)
    choice.form.prove(moved(plan))
    return choice


def forms_of(plan: Plan, like: Plan | None = None) -> tuple[FormChoice, ...]:
    """Return the kernel forms of a plan's module. With `like`, use the forms of that plan's module
    where possible."""
    own = exchanges_of(plan)
    others = () if like is None else exchanges_of(like)
    if len(own) != len(others):
        return tuple(each.once(choice_of) for each in own)
    return tuple(
        checked(each, other.once(choice_of).form) for each, other in zip(own, others, strict=True)
    )


@dataclass(frozen=True)
class TwoKernels:
    """The two kernels of a module. `forms`: the form of each; `ring`: the rings that replace the
    first kernel, if any."""

    plan: SteppedPlan
    forms: tuple[FormChoice, ...]
    ring: RingForm | None = None

    @property
    def classes(self) -> dict[str, tuple[str, ...]]:
        """The classes that the module imports to combine both kernels, by support module."""
        carries = self.ring is None or has_terms(self.halves[1])
        terms = ("ReducedTerms", "Stacked") if carries else ("Stacked",)
        return {"pallas_in_two": ("InTwo",), "pallas_terms": terms}

    @property
    def halves(self) -> tuple[DirectPlan, ...]:
        return exchanges_of(self.plan)

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """The exchanges that the two kernels perform, in order."""
        return tuple(map(moved, self.halves))

    @cached_property
    def arrays(self) -> tuple[IndexFunction, ...]:
        """The index functions for the boxes of the module's argument and result."""
        return box_functions(as_vectors(ends_of(self.plan)))

    @cached_property
    def ends(self) -> tuple[KernelEnds, KernelEnds]:
        """The names of each kernel's source and target. A kernel whose boxes equal those of the
        module's argument or result uses the same function."""
        source, target = self.arrays
        before = box_functions(self.exchanges[0])[0].results
        after = box_functions(self.exchanges[1])[1].results
        first = KernelEnds(
            source="SOURCE_TERMS",
            target="PART_TERMS",
            source_box="source_box" if before == source.results else "source_terms",
            target_box="part_terms",
            program=CARRIER,
            part="target shard",
        )
        keeps = has_terms(self.halves[1])
        second = KernelEnds(
            source="PARTS",
            target="TARGET_TERMS" if keeps else "_TARGET",
            source_box="part_box",
            target_box="target_box" if after == target.results else "target_terms",
            program="_GATHER" if keeps else "_COPIES",
            second=True,
            part="source shard",
        )
        return first, second

    def texts(self, host: HostText, powers_of_two: bool) -> tuple[KernelText, ...]:
        found = []
        for half, exchange, form, ends in zip(
            self.halves, self.exchanges, self.forms, self.ends, strict=True
        ):
            kept, sends = keeps_some(exchange), half.traffic.received_total > 0
            own = replace(host, some_local=kept, communicates=sends)
            request = KernelRequest(exchange, own, powers_of_two, ends)
            found.append(form.form.text(request))
        if self.ring is not None:
            terms, axes = terms_text(self.plan), host.program_axes
            found[0] = ring_text(self.ring, "_REDUCED", terms, axes, reach=powers_of_two)
        return tuple(found)

    def functions(self, texts: tuple[KernelText, ...]) -> tuple[IndexFunction, ...]:
        """Return the index functions for the module's arrays, followed by the index functions of
        the two kernels."""
        every = (*self.arrays, *(each for text in texts for each in text.functions))
        return tuple({each.name: each for each in reversed(every)}.values())[::-1]

    @property
    def side_lines(self) -> list[str]:
        """The lines of the constants that describe both kernels' sources and targets."""
        (first, second), (one, other) = self.exchanges, self.ends
        hidden = self.halves[0].exchange.source.hidden
        kept = self.halves[1].exchange.source.hidden
        lines = list[str]()
        if self.ring is None:
            lines = ["# As kernels have them: of a value a source shard has a term, a part all."]
            lines += stacked_lines("SOURCE", one.source, one.source_box, first.source, hidden)
            run_on = first.target, hidden, "SOURCE"
            lines += stacked_lines("TARGET", one.target, one.target_box, *run_on)
        lines += stacked_lines(
            "TARGET", other.source, other.source_box, second.source, kept, "SOURCE"
        )
        if kept:
            lines += stacked_lines("TARGET", other.target, other.target_box, second.target, kept)
        return lines

    def made(self, texts: tuple[KernelText, ...]) -> list[str]:
        """Return the lines that construct the program: an object for each kernel, and an object
        that runs both."""
        terms, (one, other), lines = terms_text(self.plan), self.ends, list(texts[0].made)
        if self.ring is None:
            given = [one.program, one.source, one.target, terms, "reduces=True"]
            lines += called("_REDUCED = ReducedTerms", given)
        lines += texts[1].made
        if has_terms(self.halves[1]):
            given = [other.program, other.source, other.target, terms]
            lines += called("_COPIES = ReducedTerms", given)
        return [*lines, *called("_PROGRAM = InTwo", ["_REDUCED", "PARTS", "_COPIES"])]

    @property
    def facts(self) -> tuple[str, ...]:
        """The module docstring's lines on layouts, parts, traffic and both kernels' forms."""
        reshard = self.plan.reshard
        first, last = (half.exchange for half in self.halves)
        ends = Exchange(first.source, last.target, HolderRule())
        said = [
            *side_lines("Source", "d1", str(reshard.source), first.source, "padded"),
            *side_lines("Target", "d2", str(reshard.target), last.target, "padded"),
            "",
            *part_lines(self.plan, ends),
            *(reduced_lines(first, reshard) if self.ring is None else []),
            *traffic_lines(self.plan),
        ]
        lines = [part for line in said for part in wrapped(line)]
        kernels = zip(("Terms", "Parts"), self.forms, self.halves, strict=True)
        for what, form, half in kernels:
            ring = self.ring if half is self.halves[0] else None
            facts = ring_facts(ring) if ring else form_facts(form, half.exchange.terms)
            lines += ["", f"{what}:", *facts]
        return (*lines, *part_table(self.plan, ends))

    @property
    def wire_bytes(self) -> int:
        """The bytes that the busiest device of each kernel receives, summed over both kernels."""
        first, second = (form.figures.wire_max for form in self.forms)
        return (first if self.ring is None else self.ring.wire_bytes) + second

    @property
    def id_line(self) -> str:
        """The line of the constant for the second kernel's collective id."""
        return f"PART_COLLECTIVE_ID = COLLECTIVE_ID + {MORE_IDS}"
