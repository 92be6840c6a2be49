"""Emission of relayouts: turn a relayout or a description into the files of its bundle."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from shardwright.codegen import registry
from shardwright.codegen.operations.emit.package import BundlePackage
from shardwright.codegen.operations.emit.relayout_reshard import modules_as_reshard, plan_as_reshard
from shardwright.codegen.operations.emit.relayout_text import MOST_RELAYS, RelayoutText, gathered
from shardwright.codegen.operations.emit.write import bundle_folder, write_bundle
from shardwright.codegen.registry import NAMES
from shardwright.codegen.show.parts_svg import DRAWN, held_rows, parts_svg
from shardwright.codegen.show.review import commands_text
from shardwright.codegen.show.stored_forms import derived
from shardwright.codegen.spec.collective_ids import relayout_id
from shardwright.codegen.spec.relayout import RelayoutDescription
from shardwright.codegen.text.single_file import single_file
from shardwright.codegen.text.support import support_text
from shardwright.codegen.text.templates import render
from shardwright.ir.drawn import Drawn
from shardwright.ir.errors import InputError
from shardwright.ir.relayout import Relayout, RelayoutPlan, plan_relayout
from shardwright.ir.relays import shapes_of
from shardwright.ir.stored import Stored

MOST_ELEMENTS = 2**31 - 1
"""The most elements of a buffer, because JAX modules index buffers with 32-bit numbers."""


@dataclass(frozen=True, repr=False)
class RelayoutBundle(Drawn):
    """The emission of a relayout: one self-contained module per backend."""

    plan: RelayoutPlan
    backends: tuple[str, ...] = NAMES
    gradient: bool = False

    def __repr__(self) -> str:
        return f"<RelayoutBundle for {', '.join(self.backends)}: {self.plan!r}>"

    def description(self, name: str) -> RelayoutDescription:
        """Return the description from which this bundle can be emitted again, under a name."""
        given = self.plan.relayout, name, self.backends
        return RelayoutDescription.of(*given, gradient=self.gradient)

    def files(self, name: str) -> dict[str, str]:
        """Return the text of every file of the bundle, by file name."""
        description = self.description(name)
        command = description.command()
        page = RelayoutPage(self.plan, name, command, self.backends, self.gradient)
        modules = (_modules(self.plan, backend, description) for backend in self.backends)
        return {
            **{file: text for each in modules for file, text in each.items()},
            "README.md": render("common/relayout.md.jinja", page),
            "relayout.svg": parts_svg(self.plan.relayout),
            "__init__.py": render(
                "common/package.py.jinja", BundlePackage("relayout", False, self.backends)
            ),
            "plan.json": self.plan.to_json(),
        }

    def write(self, path: str | Path) -> tuple[Path, ...]:
        """Write the bundle into the folder `path` and record it in the manifest next to that
        folder. The last part of `path` is the bundle's name. Return the files that were changed or
        removed. On an error, write nothing."""
        folder = bundle_folder(path, "generated/packed_qkv")
        return write_bundle(folder, self.description(folder.name), self.files(folder.name))


def _modules(plan: RelayoutPlan, backend: str, description: RelayoutDescription) -> dict[str, str]:
    moved = plan_as_reshard(plan.relayout, backend)
    if moved is not None:
        return modules_as_reshard(moved, backend, plan.relayout, description)
    command, number = description.command(), relayout_id(description)
    text = RelayoutText(plan, backend, command, number, description.gradient)
    read = partial(support_text, (backend,))
    return {f"{backend}.py": single_file(render(text.template, text), read)}


def emit_relayout(
    what: Relayout | RelayoutPlan, backends: tuple[str, ...] = NAMES, *, gradient: bool = False
) -> RelayoutBundle:
    """Return the bundle of a relayout. Raises InputError if it has more relays than a module can
    list."""
    backends = registry.listed(backends)
    plan = plan_relayout(what) if isinstance(what, Relayout) else what
    listing = [each for each in backends if plan_as_reshard(plan.relayout, each) is None]
    count = len(plan.relays)
    if gradient and plan.relayout.source.has_copies:
        count += sum(map(len, gathered(plan.relayout)))
    if listing and count > MOST_RELAYS:
        raise InputError(
            "too many boxes for a module to list",
            argument="target",
            got=f"{count:,} strided boxes between {len(plan.sent)} and "
            f"{len(plan.received)} devices",
            expected=f"at most {MOST_RELAYS:,}; for plain shardings use sw.Reshard",
        )
    if any(registry.contract(each).pads for each in listing):
        _check_sizes(plan.relayout)
    return RelayoutBundle(plan, backends, gradient)


def emit_described_relayout(description: RelayoutDescription) -> RelayoutBundle:
    given = description.relayout(), description.backends
    return emit_relayout(*given, gradient=description.gradient)


def _check_sizes(relayout: Relayout) -> None:
    sides = relayout.source.in_bytes, relayout.target.in_bytes
    for argument, side in zip(("source", "target"), sides, strict=True):
        for name, buffer in side.bound.items():
            size = math.prod(shapes_of(side, buffer, padded=True)[0])
            if size > MOST_ELEMENTS:
                raise InputError(
                    "a buffer has too many elements for the 32-bit indices of JAX modules",
                    argument=argument,
                    got=f"{size:,} elements of {name} on a device",
                    expected=f"at most {MOST_ELEMENTS:,}, or only the backend triton_gpu",
                )


@dataclass(frozen=True)
class RelayoutPage:
    """The contents of the review page."""

    plan: RelayoutPlan
    name: str
    command: str
    backends: tuple[str, ...]
    gradient: bool

    @property
    def commands(self) -> str:
        return commands_text(self.name, self.command)

    @property
    def reshards(self) -> str:
        """The file names of the modules that are the module of a reshard."""
        given = [each for each in self.backends if plan_as_reshard(self.plan.relayout, each)]
        return " and ".join(f"`{each}.py`" for each in given)

    @property
    def stored(self) -> tuple[tuple[str, Stored], ...]:
        """The source and target layouts, with their names."""
        return ("source", self.plan.relayout.source), ("target", self.plan.relayout.target)

    def held(self, stored: Stored) -> list[str]:
        """Return the lines of a table of each buffer's contents on each device."""
        heads = ["device", *stored.buffers]
        rows = [f"| {' | '.join(heads)} |", f"|---:|{'---|' * len(stored.buffers)}"]
        rows += [f"| {device} | {' | '.join(cells)} |" for device, cells in held_rows(stored)]
        if stored.mesh.size > DRAWN:
            rows.append(f"\nThese are {DRAWN} of {stored.mesh.size} devices.")
        return rows

    @property
    def derivation(self) -> list[str]:
        """The closed forms of the cuts in source and target."""
        return derived(self.plan.relayout)

    @property
    def rows(self) -> list[str]:
        """The table rows of the devices, with the bytes that each sends and receives."""
        sent, received = self.plan.sent, self.plan.received
        return [
            f"| {device} | {sent.get(device, 0):,} | {received.get(device, 0):,} |"
            for device in sorted({*sent, *received})
        ]
