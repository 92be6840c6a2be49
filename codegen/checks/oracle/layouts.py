"""The meaning of a stored layout, by its definition: for every device, an array of the shape of its
buffer with the numbers of the stored elements. `ir/parts.py` is compared with it.

Imports only numpy and takes plain data: it shares no formula with the algebra. Tensors are arrays
of their own element numbers, which are reshaped, transposed and sliced. A cut is made as lists of
indices, and a cut through a stack is a cut of the concatenated array.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shardwright.codegen.checks.oracle.definition import Placement, Ref, chunk, shard_numbers

Numbers = npt.NDArray[np.int64]
PADDING = -1
"""The number that marks padding."""


@dataclass(frozen=True)
class CutSaid:
    """The cut of a dimension, in the notation of `ir/parts.py`."""

    axes: tuple[Ref, ...] = ()
    rule: str = "flat"
    numbers: tuple[int, ...] = ()
    into: int | None = None
    reversed: bool = False
    table: tuple[int | None, ...] | None = None
    window: tuple[int, int] | None = None


@dataclass(frozen=True)
class PartSaid:
    """A part: the tensor's name, its factors by name and size (one group for each dimension), their
    stored order, and the cut of each stored dimension."""

    tensor: str
    before: tuple[tuple[tuple[str, int], ...], ...]
    after: tuple[tuple[str, ...], ...]
    dims: tuple[CutSaid, ...]


@dataclass(frozen=True)
class BufferSaid:
    """Parts stacked along a dimension, and the cut through all of them, if any."""

    dim: int
    parts: tuple[PartSaid, ...]
    cut: CutSaid | None = None


def numbered(shapes: Mapping[str, Sequence[int]]) -> dict[str, Numbers]:
    """Return every tensor as an array of its element numbers, which continue from tensor to
    tensor."""
    first, found = 0, {}
    for name, shape in shapes.items():
        size = math.prod(shape)
        found[name] = np.arange(first, first + size).reshape(tuple(shape))
        first += size
    return found


def stored_numbers(
    axes: tuple[tuple[str, int], ...],
    device_ids: Sequence[int],
    shapes: Mapping[str, Sequence[int]],
    buffer: BufferSaid,
) -> dict[int, Numbers]:
    """Return, for every device, the numbers of its stored elements; padding is -1."""
    mesh = _Mesh(axes, tuple(device_ids))
    tensors = numbered(shapes)
    return {device: _buffer(mesh, device, tensors, buffer) for device in device_ids}


@dataclass(frozen=True)
class _Mesh:
    axes: tuple[tuple[str, int], ...]
    device_ids: tuple[int, ...]

    def place(self, device: int, refs: tuple[Ref, ...]) -> int:
        """Return the coordinate of a device along some axes, combined into one number."""
        return shard_numbers(Placement(self.axes, self.device_ids, (refs,)))[device][0]

    def sizes(self, refs: tuple[Ref, ...]) -> list[int]:
        placement = Placement(self.axes, self.device_ids, ())
        return [placement.ref_size(ref) for ref in refs]


def _buffer(
    mesh: _Mesh, device: int, tensors: Mapping[str, Numbers], buffer: BufferSaid
) -> Numbers:
    parts = [_part(mesh, device, tensors[part.tensor], part) for part in buffer.parts]
    full = [part for part in parts if part.size] or parts[:1]
    if full[0].ndim == 0:
        return full[0]
    whole = np.concatenate(full, axis=buffer.dim)
    return whole if buffer.cut is None else _taken(mesh, device, whole, buffer.dim, buffer.cut)


def _part(mesh: _Mesh, device: int, tensor: Numbers, part: PartSaid) -> Numbers:
    names = [name for group in part.before for name, _ in group]
    sizes = dict(pair for group in part.before for pair in group)
    order = [names.index(name) for group in part.after for name in group]
    array = tensor.reshape([sizes[name] for name in names]).transpose(order)
    array = array.reshape([math.prod(sizes[name] for name in group) for group in part.after])
    for dim, cut in enumerate(part.dims):
        array = _taken(mesh, device, array, dim, cut)
    return array


def _taken(mesh: _Mesh, device: int, array: Numbers, dim: int, cut: CutSaid) -> Numbers:
    low, high = cut.window or (0, array.shape[dim])
    places = list(range(low, high))
    levels, place = mesh.sizes(cut.axes), mesh.place(device, cut.axes)
    parts = math.prod(levels) if cut.into is None else cut.into
    if cut.rule == "listed" and cut.into is None:
        parts = len(cut.numbers) - 1
    shards = _shards(places, parts, levels, cut)
    number = place if cut.table is None else cut.table[place]
    if cut.reversed:
        shards = shards[::-1]
    held = [] if number is None else list(shards[number])
    taken = np.take(array, held, axis=dim)
    if cut.rule != "sized" or len(cut.numbers) != 1:
        return taken
    padding = [(0, cut.numbers[0] - len(held) if axis == dim else 0) for axis in range(array.ndim)]
    return np.pad(taken, padding, constant_values=PADDING)


def _shards(
    places: list[int], parts: int, levels: list[int], cut: CutSaid
) -> Sequence[Sequence[int]]:
    """Return the entries of `places` in each shard, by the rule of the cut."""
    numbers = cut.numbers
    if cut.rule == "flat":
        return chunk(places, parts)
    if cut.rule == "balanced":
        return [each.tolist() for each in np.array_split(np.array(places), parts)]
    if cut.rule == "nested":
        shards: list[Sequence[int]] = [places]
        for level in levels:
            shards = [piece for shard in shards for piece in chunk(shard, level)]
        return shards
    if cut.rule == "sized":
        size, before = (*numbers, 0)[:2]
        line: list[int | None] = [*([None] * before), *places]
        taken = [line[shard * size : (shard + 1) * size] for shard in range(parts)]
        return [[place for place in shard if place is not None] for shard in taken]
    if cut.rule == "listed":
        return [places[numbers[k] : numbers[k + 1]] for k in range(parts)]
    if cut.rule == "cover":
        covered = list(range(numbers[1]))
        size = numbers[2] if len(numbers) > 2 else -(-numbers[1] // parts)
        touched = [
            {element // numbers[0] for element in covered[shard * size : (shard + 1) * size]}
            for shard in range(parts)
        ]
        return [[places[block] for block in sorted(blocks)] for blocks in touched]
    raise ValueError(f"rule: got: {cut.rule!r}")
