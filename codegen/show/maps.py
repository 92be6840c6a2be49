"""The two layouts of a reshard in one set of symbols, and the map from source to target shards."""

from __future__ import annotations

from dataclasses import dataclass

from shardwright.codegen.show.formulas import LayoutMap, layout_map, listed
from shardwright.codegen.show.notation import text
from shardwright.codegen.show.symbols import OTHER_TARGET, SOURCE, TARGET
from shardwright.ir.algebra.index import Value
from shardwright.ir.axes import AxisRef
from shardwright.ir.errors import InputError
from shardwright.ir.reshard import Reshard


@dataclass(frozen=True)
class ReshardMaps:
    """The two layouts of a reshard in one set of symbols."""

    source: LayoutMap
    target: LayoutMap

    @staticmethod
    def of(reshard: Reshard, symbols: bool) -> ReshardMaps:
        """Return the maps in symbols, or in the numbers of the reshard.

        If both meshes have the same axes, their sizes have the same symbols, unless the two
        shardings cut an axis in ways without a common refinement.
        """
        shape = None if symbols else reshard.shape
        splits = reshard.source_split, reshard.target_split
        shared = shared_refs(reshard)
        letters = OTHER_TARGET if shared is None else TARGET
        refs = shared or ()
        return ReshardMaps(
            layout_map(reshard.source, shape, splits[0], SOURCE, refs),
            layout_map(reshard.target, shape, splits[1], letters, refs),
        )

    def composed(self) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        """Return the target of `d1(...)[...]`: the target's inverse map after the source's map."""
        target = self.target
        placed, local = target.to_device(target.elements, target.any_value)
        elements = dict(zip(target.elements, self.source.to_tensor(), strict=True))
        return (
            tuple(value.xreplace(elements) for value in placed),
            tuple(value.xreplace(elements) for value in local),
        )

    def composed_text(self) -> str:
        """Return `d1(m, n)[k, l] -> t[...] -> d2(...)[...] = d2(p, q)[u, v]`."""
        if not all(dim.is_flat for dim in (*self.source.dims, *self.target.dims)):
            return self._composed_by_name()
        names = tuple(index.name for index in self.source.local)
        forward = self.source.forward_text("d1")
        coordinates, local = self.composed()
        placed = [text(value, names) for value in coordinates]
        rests = [text(value, names) for value in local]
        left, _, element = forward.text.partition(" -> ")
        end = f"d2({listed(self.target.coordinates)})[{listed(self.target.local)}]"
        return "\n".join([f"{left} ->", f"{element} ->", *_braced("d2", placed, rests), f"= {end}"])

    def _composed_by_name(self) -> str:
        """Return `composed_text` for a nested split, whose single line would be too long: the two
        maps in sequence."""
        inverse = self.target.inverse_text("d2")
        end = f"d2({listed(self.target.coordinates)})[{listed(self.target.local)}]"
        return f"{self.source.forward_text('d1')}\n{inverse}\n= {end}"


def _braced(device: str, placed: list[str], rests: list[str]) -> list[str]:
    """Return `device(...)[...]`, with one argument per line if a single line would be too long."""
    line = f"{device}({', '.join(placed)})[{', '.join(rests)}]"
    if len(line) <= 60:
        return [line]
    return [
        f"{device}(",
        *(f"    {part}," for part in placed),
        ")[",
        *(f"    {part}," for part in rests),
        "]",
    ]


def shared_refs(reshard: Reshard) -> tuple[AxisRef, ...] | None:
    """Return the axis references of source and target if both meshes have the same axes and the
    references have a common refinement; otherwise None."""
    source, target = reshard.source, reshard.target
    if source.mesh.axes != target.mesh.axes:
        return None
    refs = (*source.used(), *source.unreduced, *target.used(), *target.unreduced)
    try:
        source.mesh.refine(refs)
    except InputError:
        return None
    return refs
