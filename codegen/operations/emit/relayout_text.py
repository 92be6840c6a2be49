"""The text of a relayout's module for one backend."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from shardwright.codegen import registry
from shardwright.codegen.show.parts_svg import held_rows
from shardwright.codegen.spec.relayout import RelayoutDescription
from shardwright.codegen.text.context import id_lines, quoted
from shardwright.codegen.text.python_text import WIDTH, wrapped
from shardwright.ir.dtypes import is_floating, itemsize
from shardwright.ir.parts import axes_by_dim
from shardwright.ir.relayout import Relayout, RelayoutPlan
from shardwright.ir.relays import Relay, gathered_of, relays_of, shapes_of
from shardwright.ir.stored import Stored

MOST_RELAYS = 1 << 14
"""The most relays in a module, which lists each of them: a longer list is unreadable and slow to
trace."""


WITHOUT_GRADIENT = ("float8_e8m0fnu",)
"""Inexact dtypes that cannot represent a cotangent: float8_e8m0fnu has only powers of two."""


MOST_RANGES = 3
"""The most ranges of a dimension to list in the comment on a relay."""


@dataclass(frozen=True)
class SideOfRelayout:
    """The source or the target side in a module. `padded`: whether buffers have the same size on
    every device."""

    name: str  # "SOURCE" or "TARGET"
    stored: Stored
    padded: bool

    @property
    def mesh(self) -> str:
        return quoted(str(self.stored.mesh))

    @property
    def id_lines(self) -> list[str]:
        return id_lines(f"{self.name}_IDS", self.stored.mesh)

    @property
    def axes(self) -> str:
        """The sizes of the mesh axes by name, as a Python dict."""
        listed = (f'"{name}": {size}' for name, size in self.stored.mesh.axes)
        return f"{{{', '.join(listed)}}}"

    @property
    def buffer_lines(self) -> list[str]:
        """The lines for each buffer: its layout, its contents on devices, and its shapes."""
        lines: list[str] = []
        rows = [*held_rows(self.stored)]
        for number, (name, layout) in enumerate(self.stored.buffers.items()):
            found = shapes_of(self.stored, self.stored.bound[name], self.padded)
            shapes = _repeated(list(map(str, found)))
            held = (f"    # device {device}: {cells[number]}" for device, cells in rows)
            lines += [f"{quoted(name)}: (", f"    {quoted(str(layout))},"]
            lines += [*held, f"    {shapes},", "),"]
        return lines

    @property
    def spec_lines(self) -> list[str]:
        """The mesh axes along which each dimension of each buffer is concatenated."""
        lines = []
        for name, layout in self.stored.buffers.items():
            rank = len(self.stored.bound[name].parts[0].axes)
            dims = (", ".join(_entry(names)) for names in axes_by_dim(layout, rank))
            lines.append(f"{quoted(name)}: P({', '.join(dims)}),")
        return lines


def _entry(names: tuple[str, ...]) -> Iterator[str]:
    listed = [f'"{name}"' for name in names]
    yield "None" if not listed else listed[0] if len(listed) == 1 else f"({', '.join(listed)})"


@dataclass(frozen=True)
class RelayoutText:
    """The context of the template of a relayout's module."""

    plan: RelayoutPlan
    backend: str
    command: str
    collective_id: int
    gradient: bool

    @property
    def title(self) -> str:
        """What the module does, in one or two lines."""
        relayout = self.plan.relayout
        listed = ", ".join(
            f"{name} {'x'.join(map(str, shape)) or '()'}"
            for name, shape in relayout.source.tensors.items()
        )
        dtype = relayout.source.dtype
        said = f'"""Move {dtype} {listed} from one stored layout to another.'
        return "\n".join(wrapped(said))[3:]

    @property
    def facts(self) -> tuple[str, ...]:
        """Additional lines of the module's docstring."""
        plan, packed = self.plan, self.plan.relayout.source.dtype != self.dtype
        return (
            *["Two elements are a byte: shapes and layouts below are of bytes."] * packed,
            f"The busiest device receives {plan.received_max:,} bytes, the least possible.",
            f"No device sends over {plan.sent_max:,}; all devices together receive {plan.total:,}.",
        )

    @property
    def dtype(self) -> str:
        """The dtype of arrays and tensors: bytes if one array element holds two tensor elements."""
        return self.plan.relayout.source.in_bytes.dtype

    @property
    def received(self) -> int:
        return self.plan.received_max

    @property
    def differentiable(self) -> bool:
        return self.gradient and self._inexact and self.dtype not in WITHOUT_GRADIENT

    @property
    def template(self) -> str:
        """The template of the module. In JAX, one template serves modules with and without
        gradients, because XLA derives the backward moves."""
        if self.padded or not self.differentiable:
            return f"{self.backend}/relayout.py.jinja"
        return f"{self.backend}/relayout_{'copies' if self.copies else 'gradient'}.py.jinja"

    @property
    def no_gradient(self) -> str:
        """Why a module of real or complex numbers has no gradients, or ""."""
        if self.dtype in WITHOUT_GRADIENT:
            return f"{self.dtype} has no gradient: use a different dtype"
        missing = "this module has no gradient: emit it with gradient=True (--gradient)"
        return missing if self._inexact else ""

    @property
    def _inexact(self) -> bool:
        return is_floating(self.dtype) or self.dtype == "complex64"

    @property
    def copies(self) -> bool:
        """Whether the module moves cotangents to several copies of an element."""
        return self.differentiable and not self.padded and self.plan.relayout.source.has_copies

    @property
    def sum_dtype(self) -> str:
        """The dtype in which torch modules add cotangents."""
        return self.dtype if itemsize(self.dtype) >= 4 else "float32"

    @property
    def devices(self) -> int:
        return RelayoutDescription.of(self.plan.relayout, "any").devices

    @property
    def padded(self) -> bool:
        """Whether buffers have the same size on every device."""
        return registry.contract(self.backend).pads

    @property
    def sides(self) -> tuple[SideOfRelayout, SideOfRelayout]:
        """The source side and the target side of the module."""
        relayout = self.plan.relayout
        return (
            SideOfRelayout("SOURCE", relayout.source.in_bytes, self.padded),
            SideOfRelayout("TARGET", relayout.target.in_bytes, self.padded),
        )

    @cached_property
    def _relays(self) -> tuple[Relay, ...]:
        relayout = self.plan.relayout
        sides = relayout.source.in_bytes, relayout.target.in_bytes
        return relays_of(*sides, padded=self.padded)

    @cached_property
    def _back(self) -> tuple[tuple[Relay, ...], tuple[Relay, ...]]:
        return gathered(self.plan.relayout) if self.copies else ((), ())

    @cached_property
    def _forms(self) -> dict[tuple[object, ...], int]:
        relays = itertools.chain(self._relays, *self._back)
        return {form: n for n, form in enumerate(dict.fromkeys(map(_form, relays)))}

    @property
    def unformatted(self) -> str:
        """A comment that makes formatters skip tables with long lines."""
        lines = (*self.form_lines, *itertools.chain(*self.back_lines), *self.relay_lines)
        return "  # fmt: skip" if any(len(line) + 4 > WIDTH for line in lines) else ""

    @property
    def form_lines(self) -> list[str]:
        """The distinct forms of relays, each with its buffers and loops."""
        return [f"{form}," for form in self._forms]

    @property
    def relay_lines(self) -> list[str]:
        """A line for each relay: sender, receiver, number of its form, and first elements."""
        return self._lines(self._relays)

    @property
    def back_lines(self) -> tuple[list[str], list[str]]:
        """The lines of relays from home devices to the target, and of relays to the other copies in
        the source."""
        return self._lines(self._back[0]), self._lines(self._back[1])

    def _lines(self, relays: tuple[Relay, ...]) -> list[str]:
        shapes = self.plan.relayout.source.in_bytes.tensors
        return [
            f"{(relay.sender, relay.receiver, self._forms[_form(relay)], *_starts(relay))},"
            f"  # {relay.elements:,} of {_said(relay, shapes[relay.tensor])}"
            for relay in sorted(relays, key=lambda relay: (relay.sender, relay.receiver))
        ]


def gathered(relayout: Relayout) -> tuple[tuple[Relay, ...], tuple[Relay, ...]]:
    return gathered_of(relayout.source.in_bytes, relayout.target.in_bytes)


def _form(relay: Relay) -> tuple[object, ...]:
    loops = tuple((loop.times, *loop.steps) for loop in relay.loops)
    return relay.source.buffer, tuple(place.buffer for place in relay.targets), loops


def _said(relay: Relay, shape: tuple[int, ...]) -> str:
    found = []
    for ranges, extent in zip(relay.box, shape, strict=True):
        listed = [f"{low}:{high}" for low, high in ranges[:MOST_RANGES]]
        listed += ["..."] * (len(ranges) > MOST_RANGES)
        found.append(":" if ranges == ((0, extent),) else "+".join(listed))
    while found and found[-1] == ":":
        found.pop()
    return f"{relay.tensor}[{', '.join(found)}]" if found else relay.tensor


def _starts(relay: Relay) -> tuple[int, ...]:
    return relay.source.start, *(place.start for place in relay.targets)


def _repeated(items: Sequence[str]) -> str:
    if len({*items}) == 1 and len(items) > 1:
        return f"[{items[0]}] * {len(items)}"
    return f"[{', '.join(items)}]"
