"""Derive a reshard's tiles from its two shardings, in symbols and in numbers."""

from __future__ import annotations

import sympy

from shardwright.codegen.moves.direct import plan_direct
from shardwright.codegen.show.formulas import LayoutMap, layout_map
from shardwright.codegen.show.maps import ReshardMaps, shared_refs
from shardwright.codegen.show.notation import text
from shardwright.codegen.show.proof import prove_roundtrip
from shardwright.codegen.show.symbols import OTHER_TARGET, SOURCE
from shardwright.codegen.show.tiles import tile_sections
from shardwright.codegen.text.docstring import senders, title, traffic_lines
from shardwright.ir.mesh import Mesh
from shardwright.ir.plan import DirectPlan
from shardwright.ir.plan_json import closed_forms
from shardwright.ir.reshard import Reshard
from shardwright.ir.sharding import Sharding

# The maximum number of device ids to list. For a larger mesh, the first ids and the size are shown.
LISTED_IDS = 64


def derivation(reshard: Reshard) -> str:
    """Return the derivation of a reshard's tiles from its two shardings.

    It contains the layout maps and their inverses, the map from source to target shards, the ranges
    of a tile for fixed devices, peers, period and divisors, senders, and bytes with their bounds.
    """
    plan = plan_direct(reshard)
    return "\n".join([title(plan), *derivation_lines(plan)])


def derivation_lines(plan: DirectPlan) -> list[str]:
    """Return the lines of a derivation below its title."""
    reshard = plan.reshard
    maps = ReshardMaps.of(reshard, symbols=True), ReshardMaps.of(reshard, symbols=False)
    other = shared_refs(reshard) is None
    return [
        *_section("Symbols", _legend(reshard, maps[0], other)),
        *_section(f"Source: sharding = {reshard.source}", _side(reshard, "source")),
        *_section(f"Target: sharding = {reshard.target}", _side(reshard, "target")),
        *_section(
            "From source to target: d1 is d of the source, d2 is d of the target",
            [*maps[0].composed_text().split("\n"), *_numbers(maps[1].composed_text())],
        ),
        *tile_sections(plan.exchange, *maps),
        *_section("Senders", [*senders(plan.exchange), *_holder(plan)]),
        *_section("Bytes", traffic_lines(plan)),
    ]


def _section(heading: str, lines: list[str]) -> list[str]:
    return ["", heading, *(f"    {line}" for line in lines)]


def _numbers(formulas: str) -> list[str]:
    return ["with numbers:", *formulas.split("\n")]


def _legend(reshard: Reshard, maps: ReshardMaps, other: bool) -> list[str]:
    extents = ", ".join(
        f"{text(dim.extent)} = {extent}"
        for dim, extent in zip(maps.source.dims, reshard.shape, strict=True)
    )
    lines = [f"{extents}: the extents of the tensor t"] if extents else ["t has one element"]
    sides = [(maps.source, reshard.source, "source " if other else "")]
    if other:
        sides.append((maps.target, reshard.target, "target "))
    for layout, sharding, which in sides:
        lines += _mesh_legend(layout, sharding, which)
    if not other and reshard.source.mesh != reshard.target.mesh:
        lines += _ids("target ", maps.target, reshard.target.mesh)
    return lines


def _mesh_legend(layout: LayoutMap, sharding: Sharding, which: str) -> list[str]:
    mesh = sharding.mesh
    lines = [
        f"{_size(layout, number, size)}: the size of {which}mesh axis "
        f'"{name}", along which {layout.axes[number].coordinate.name} is a device\'s coordinate'
        for number, (name, size) in enumerate(mesh.axes)
    ]
    return [*lines, *_ids(which, layout, mesh)]


def _size(layout: LayoutMap, number: int, size: int) -> str:
    axis = layout.axes[number]
    whole = layout.letters.name("sizes", number, len(layout.axes))
    if len(axis.pieces) == 1:
        return f"{whole} = {size}"
    parts = " * ".join(text(digit.size) for _, digit in axis.pieces)
    numbers = " * ".join(str(ref.size) for ref, _ in axis.pieces)
    return f"{whole} = {parts} = {numbers} = {size}"


def _ids(which: str, layout: LayoutMap, mesh: Mesh) -> list[str]:
    device = f"d({', '.join(index.name for index in layout.coordinates)})"
    place = text(layout.position)
    if isinstance(mesh.device_ids, range):
        start = mesh.device_ids.start
        return [f"{which}{device} is device {text(layout.position + start)}"]
    ids = ", ".join(map(str, mesh.device_ids[:LISTED_IDS]))
    more = f", … {mesh.size} in all" if mesh.size > LISTED_IDS else ""
    return [f"{which}{device} is device_ids[{place}] of [{ids}{more}]"]


def _side(reshard: Reshard, side: str) -> list[str]:
    sharding: Sharding = getattr(reshard, side)
    split: str = getattr(reshard, f"{side}_split")
    shared = shared_refs(reshard)
    letters = OTHER_TARGET if shared is None and side == "target" else SOURCE
    symbols = layout_map(sharding, None, split, letters, shared or ())
    numbers = layout_map(sharding, reshard.shape, split, letters, shared or ())
    return [
        *_maps(symbols),
        f"t after d and d after t are the identity, {prove_roundtrip(sharding, split)}",
        *_numbers("\n".join(_maps(numbers))),
        *_shards(numbers),
    ]


def _maps(layout: LayoutMap) -> list[str]:
    return f"{layout.forward_text()}\n{layout.inverse_text()}".split("\n")


def _shards(layout: LayoutMap) -> list[str]:
    shape = " x ".join(str(dim.size) for dim in layout.dims) or "one element"
    uneven = [str(axis) for axis, dim in enumerate(layout.dims) if not dim.is_even]
    cut = f", cut short along dimension {', '.join(uneven)}" if uneven else ""
    nested = [str(axis) for axis, dim in enumerate(layout.dims) if not dim.is_flat]
    split = f"; the split of dimension {', '.join(nested)} is nested" if nested else ""
    free = [str(ref) for ref in layout.free if layout.piece(ref).size > sympy.Integer(1)]
    held = f"; each on every device along {', '.join(free)}" if free else ""
    return [f"shards of {shape}{cut}{split}{held}"]


def _holder(plan: DirectPlan) -> list[str]:
    if plan.exchange.source.replicas == 1:
        return []
    forms = closed_forms(plan.exchange)
    piece = ", piece" if plan.exchange.rule.pieces > 1 else ""
    return [f"holder(shard a, receiver{piece}) = {forms['holder']}    (positions in the meshes)"]
