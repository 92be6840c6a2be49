"""Which small functions a module has: those that its index functions, kernels and host call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import assert_never

from shardwright.codegen.backends.pallas_tpu.direct import Direct
from shardwright.codegen.backends.pallas_tpu.host import PallasHost as HostText
from shardwright.codegen.backends.pallas_tpu.routed.strategy import Routed
from shardwright.codegen.backends.pallas_tpu.slots import Slots
from shardwright.codegen.backends.pallas_tpu.strategy import Form
from shardwright.codegen.backends.pallas_tpu.windows import Windows

# By the macros of `pallas_tpu/helpers.py.jinja`, in the order in which they stand in a module.
ARITHMETIC = ("numpy", "minimum", "maximum", "div", "rem", "operand")
RANKS = ("source_rank", "target_rank", "source_position", "target_position")
BOXES = ("ranges", "viewed", "is_full", "same", "multiple", "piece", "holds", "negated")
WORDS = ("words", "elements")
CALLS = {
    "minimum": ("numpy",),
    "maximum": ("numpy",),
    "div": ("operand",),
    "rem": ("operand",),
    "piece": ("maximum",),
    "holds": ("same",),
    "negated": ("numpy",),
}
"""What they call themselves."""


@dataclass(frozen=True)
class Helpers:
    """The helpers of a module, where it has them: before its index functions, after them, and in
    the midst of its kernels."""

    arithmetic: tuple[str, ...]
    ranks: tuple[str, ...]
    boxes: tuple[str, ...]
    words: tuple[str, ...]

    @staticmethod
    def of(form: Form, host: HostText) -> Helpers:
        """Return the helpers of a form, with what they call themselves."""
        found, waiting = set[str](), [*host.module.calls, *_called(form, host)]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += CALLS.get(name, ())
        return Helpers(*(_among(found, names) for names in (ARITHMETIC, RANKS, BOXES, WORDS)))


def _among(found: Iterable[str], names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if name in found)


def _called(form: Form, host: HostText) -> Iterator[str]:
    """Yield what templates call; `_shape` of every module takes boxes apart."""
    yield from ("ranges", "is_full")
    other_order = not host.module.same_order
    if other_order:
        yield from ("source_position", "target_position")
    if host.pieces > 1:
        yield "piece"
    if host.communicates:
        yield from ("div", "rem")
        yield from ("holds", "negated") if host.some_local else ()
        yield from ("source_rank",) if other_order else ()
        if other_order and not isinstance(form, Routed):
            yield from ("target_rank", "numpy")
    match form:
        case Direct():
            yield from ("viewed", "multiple")
        case Windows():
            yield from ("viewed", "multiple", "div", "rem", "minimum", "maximum")
            yield from WORDS if form.itemsize < 4 else ()
        case Slots():
            yield "operand"
        case Routed():
            yield from ("multiple",) if form.is_hinted else ()
        case _:
            assert_never(form)
    if isinstance(form, Direct | Slots) and host.some_local and other_order:
        yield "holds"
