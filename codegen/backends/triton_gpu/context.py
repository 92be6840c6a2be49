"""The context of a Triton module's template: the text that is specific to one reshard. The code
that all modules share is in support modules."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from shardwright.codegen.backends.base import Request
from shardwright.codegen.backends.int32 import refuse_wide
from shardwright.codegen.backends.triton_gpu.kernel import Kernel
from shardwright.codegen.backends.triton_gpu.phases import BOTH, PullPhase, exchanges_of, phases_of
from shardwright.codegen.backends.triton_gpu.pushed import PushKernel
from shardwright.codegen.moves.reduce import reduced_like
from shardwright.codegen.text.context import ModuleText, Said, quoted, refuse_common, text_of
from shardwright.codegen.text.docstring import (
    part_lines,
    reduced_lines,
    senders,
    side_lines,
    title,
    traffic_lines,
)
from shardwright.codegen.text.index_functions import box_functions
from shardwright.codegen.text.python_text import called, neutral_text, wrapped
from shardwright.codegen.text.support import version
from shardwright.codegen.text.table import part_table, transfer_table
from shardwright.codegen.text.templates import render as render_template
from shardwright.ir.algebra.printers import PYTHON
from shardwright.ir.exchange import Exchange, HolderRule
from shardwright.ir.layout import Layout
from shardwright.ir.mesh import AxisRef
from shardwright.ir.plan import Plan, SteppedPlan, direct_of
from shardwright.ir.reshard import Reshard
from shardwright.ir.sharding import Operator, Sharding
from shardwright.ir.steps import MoveStep
from shardwright.ir.torch_placements import ascends, split_factors

NAME = "triton_gpu"
# The most elements of a tensor that the self-check moves: FEW in templates/support/torch_check.py.
MOST_MOVED = 2**18


@dataclass(frozen=True)
class DTensorText:
    """A reshard between DTensors. `before`, `after`: the placements of both sides, as in the
    module; `shapes`: the shapes of both meshes; `source`, `target`: the placements in PyTorch's
    notation, for a comment."""

    before: str
    after: str
    shapes: str
    source: str
    target: str

    @property
    def lines(self) -> list[str]:
        given = ["_HOST", self.before, self.after, self.shapes]
        return called("reshard_dtensor = DTensors", given, ".reshard")


class Extra(NamedTuple):
    """A feature that a support file adds to modules. `name`: the feature's name in requests;
    `file`: the support file; `adds`: the name that modules import from it; `in_host`: whether the
    host object takes the feature as an argument."""

    name: str
    file: str
    adds: str
    in_host: bool = True


EXTRAS = (
    Extra("async", "torch_async", "Work"),
    Extra("check_exchange", "torch_handed", "handed_over"),
    Extra("remembered", "torch_remembered", "Remembered"),
    Extra("symmetric", "torch_memory", "SharedMemory", in_host=False),
)


@dataclass(frozen=True)
class TritonText:
    """The context of the module template."""

    support: str
    module: ModuleText
    phases: tuple[PullPhase, ...]
    host: tuple[str, ...]
    dtensor: DTensorText | None
    extras: tuple[Extra, ...]
    gradient: bool
    elements: int
    parts: str  # the sharding between two exchanges, "" for a single exchange

    @property
    def self_check(self) -> str:
        """The parts of the module's self-check, in words."""
        if self.elements > MOST_MOVED:
            return "checks boxes and peers; the tensor is too large to move"
        return "checks boxes and peers, then moves elements"

    @property
    def exports(self) -> str:
        """The list of public names, as an expression, except the names for shared memory."""
        names = ["reshard", *(["reshard_dtensor"] if self.dtensor else [])]
        return str([*names, "reshard_local", "source_shape", "target_shape"]).replace("'", '"')

    @property
    def entries(self) -> tuple[str, ...]:
        """The templates of public functions other than `reshard` and `reshard_local`."""
        found = ["shared"] * self.shares + ["dtensor"] * (self.dtensor is not None)
        return tuple(f"triton_gpu/{name}.py.jinja" for name in found)

    @property
    def _shared(self) -> list[tuple[str, str]]:
        names = ["SharedMemory"] if self.shares else []
        names += ["Push"] if self.phases[-1].push else []
        return [("torch_memory", ", ".join(sorted(names)))] if names else []

    @property
    def shares(self) -> bool:
        """Whether callers can share memory with peers."""
        return any(not each.in_host for each in self.extras)

    @property
    def imports(self) -> tuple[tuple[str, str], ...]:
        """The module's imports, sorted: (support file, the names imported from it)."""
        phases = self.phases
        rows = {"shard_at"}.union(*(phase.imported for phase in phases))
        lines = sorted(rows & {"copy_some_lines"})
        both = {phase.together for phase in phases} & {BOTH}
        listed = {phase.listed for phase in phases}
        reduces = phases[0].kernel.reduces
        hosts = [
            *([] if reduces and len(phases) == 1 else [("torch_gpu", "Reshard")]),
            *([("torch_phased", "Phased")] if len(phases) > 1 else []),
            *([("torch_reduce", "Reduction")] if reduces else []),
        ]
        found = [
            *([("exchanges", "Exchange")] if "Exchange" in listed else []),
            *([("cuts", "Cut, CutExchange")] if "CutExchange" in listed else []),
            ("sides", "Side"),
            *([("torch_dtensor", "DTensors")] if self.dtensor else []),
            *([("torch_gradient", "Gradient")] if self.gradient else []),
            *((each.file, each.adds) for each in self.extras if each.in_host),
            *self._shared,
            *hosts,
            *(("triton_lines", name) for name in lines),
            ("triton_rows", ", ".join([*both, "Tiles", *sorted(rows.difference(lines))])),
        ]
        return tuple(sorted(found))


def refuse(plan: Plan) -> None:
    """Raise InputError for a reshard that this backend does not support."""
    refuse_common(plan, NAME, {})
    for exchange in exchanges_of(plan):
        refuse_wide(plan, exchange, NAME)


def render(request: Request) -> str:
    """Return the text of a module. A module with a gradient and its backward module refer to each
    other."""
    return render_template("triton_gpu/module.py.jinja", _module(request))


def _module(request: Request) -> TritonText:
    plan = request.plan if request.like is None else reduced_like(request.plan, request.like)
    reshard, phases = plan.reshard, phases_of(plan)
    if "symmetric" in request.features:
        pushing = replace(phases[-1], push=PushKernel.of(phases[-1].kernel))
        phases = (*phases[:-1], pushing)
    said = Said(title(plan), tuple(_facts(plan, phases)))
    functions, ends = phases[0].exchange.once(box_functions), _ends(plan)
    if len(phases) > 1:
        part, last = phases[1].exchange.once(box_functions)
        functions = functions[0], replace(part, name="part_box", doc=part.doc.replace(*PART)), last
    module = text_of(plan, request.command, PYTHON, functions, said, ends)
    return TritonText(
        support=version(NAME),
        module=module,
        phases=phases,
        host=_host(request, phases),
        dtensor=_dtensor(reshard, ends) if "dtensor" in request.features else None,
        extras=tuple(each for each in EXTRAS if each.name in request.features),
        gradient=request.derivative,
        elements=math.prod(reshard.shape),
        parts=_parts(plan),
    )


def lacks(plan: Plan) -> tuple[str, ...]:
    """Return the features that a plan's module cannot have: "dtensor" if DTensor cannot express one
    side."""
    return () if _dtensor(plan.reshard, _ends(plan)) else ("dtensor",)


PART = ("source shard", "part")
"""A phrase in the docstring of the second exchange's source box, and its replacement."""


def _ends(plan: Plan) -> Exchange:
    if isinstance(plan, SteppedPlan):
        first, *_, last = (step.exchange for step in plan.steps if isinstance(step, MoveStep))
        return Exchange(first.source, last.target, HolderRule())
    return direct_of(plan).exchange


def _parts(plan: Plan) -> str:
    return quoted(str(plan.steps[0].ends.after)) if isinstance(plan, SteppedPlan) else ""


def _facts(plan: Plan, phases: tuple[PullPhase, ...]) -> list[str]:
    ends = _ends(plan)
    said = [
        *side_lines("Source", "d1", str(plan.reshard.source), ends.source, "dense"),
        *side_lines("Target", "d2", str(plan.reshard.target), ends.target, "dense"),
        "",
    ]
    if isinstance(plan, SteppedPlan):
        said += [*part_lines(plan, ends), *reduced_lines(phases[0].exchange, plan.reshard)]
        table = part_table(plan, ends)
    else:
        kernel, exchange = phases[0].kernel, direct_of(plan).exchange
        met = (_met(axis, kernel) for axis in range(kernel.hidden, len(kernel.exchange.dims)))
        said += [line for line in met if line]
        said += [*reduced_lines(exchange, plan.reshard), *senders(exchange)]
        table = transfer_table(direct_of(plan))
    said += traffic_lines(plan)
    return [*(part for line in said for part in wrapped(line)), *table]


def _met(axis: int, kernel: Kernel) -> str:
    dim = kernel.exchange.dims[axis]
    if max(dim.source.parts, dim.target.parts) == 1:
        return ""
    sizes = f"source shards of {dim.source.size} meet target shards of {dim.target.size}"
    met = f"{kernel.meets(axis)} source shard{'s' * (kernel.counts[axis] > 1)}"
    return f"Along dimension {axis - kernel.hidden}, {sizes}: {met} for each target shard."


def _host(request: Request, phases: tuple[PullPhase, ...]) -> tuple[str, ...]:
    back = NAME if request.backward else f"{NAME}_backward"
    more = [f'gradient=Gradient(__package__, "{back}")'] if request.derivative else []
    reshard = request.plan.reshard
    if reshard.places and reshard.target.operator != "sum":
        more.append(f"empty={neutral_text(reshard.dtype, reshard.target.operator)}")
    known = [each for each in EXTRAS if each.in_host and each.name in request.features]
    features = [f'"{each.name}": {each.adds}' for each in known]
    if push := phases[-1].push:
        features.append(f'"push": Push(push_kernel, push, {push.tiles})')
    constants, kept = [], []
    if features:
        constants, kept = [f"FEATURES = {{{', '.join(features)}}}"], ["features=FEATURES"]
    constants += [line for phase in phases for line in phase.constants]
    if len(phases) == 1:
        name, given = phases[0].host([*more, *kept])
        return (*constants, *called(f"_HOST = {name}", given))
    lines = []
    for name, phase in zip(("_REDUCE", "_GATHER"), phases, strict=True):
        kind, given = phase.host(kept)
        lines += called(f"{name} = {kind}", given)
    return (*constants, *lines, *called("_HOST = Phased", ["_REDUCE", "_GATHER", *more, *kept]))


def _dtensor(reshard: Reshard, ends: Exchange) -> DTensorText | None:
    before = placements(reshard.source, ends.source)
    after = placements(reshard.target, ends.target)
    if before is None or after is None:
        return None
    shapes = tuple(
        tuple(size for _, size in side.mesh.axes) for side in (reshard.source, reshard.target)
    )
    codes, words = (_codes(before), _codes(after)), (_words(before), _words(after))
    return DTensorText(*codes, repr(shapes), *words)


_Placed = int | tuple[int, int] | Operator | None


def placements(sharding: Sharding, layout: Layout) -> tuple[_Placed, ...] | None:
    """Return the DTensor placement along each mesh axis, or None if DTensor cannot express them.

    A placement is one of these: the dimension that the axis splits; (dimension, split factor) for a
    `_StridedShard`, if a later axis is more major; the operator that reduces the axis's terms; None
    if the axis replicates. DTensor splits a dimension axis by axis, in chunks. Over several axes
    that is the split `nested`, or any split if the extent divides evenly. Ranks must ascend along
    an axis that splits.
    """
    names = list(sharding.mesh.names)
    placed: list[_Placed] = [None] * len(names)
    for ref in sharding.unreduced:
        if ref != AxisRef(ref.name):
            return None
        placed[names.index(ref.name)] = sharding.operator
    for number, split in enumerate(layout.dims[layout.hidden :]):
        factors = split_factors(sharding, number)
        if factors is None or not all(ascends(sharding.mesh, name) for name in factors):
            return None
        whole = all(ref == AxisRef(ref.name) for ref in sharding.dims[number].axes)
        several = sum(sharding.mesh.sizes[name] > 1 for name in factors) > 1
        if several and not split.is_even and (split.is_flat or not whole):
            return None
        for name, factor in factors.items():
            placed[names.index(name)] = number if factor == 1 else (number, factor)
    return tuple(placed) or None


def _codes(placed: tuple[_Placed, ...]) -> str:
    """Format placements as in a module's code: `(0, (0, 2), "sum", None)`."""
    return repr(placed).replace("'", '"')


def _words(placed: tuple[_Placed, ...]) -> str:
    """Format placements in PyTorch's notation: `(Shard(0), Partial("sum"), Replicate())`."""
    return f"({', '.join(map(_word, placed))}{',' * (len(placed) == 1)})"


def _word(placed: _Placed) -> str:
    match placed:
        case None:
            return "Replicate()"
        case int():
            return f"Shard({placed})"
        case (dim, factor):
            return f"_StridedShard({dim}, split_factor={factor})"
        case _:
            return f'Partial("{placed}")'
