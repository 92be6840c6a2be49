"""Kinds: groups of tensors of a model that have the same layouts in source and target.

A *member* is a tensor with one buffer of the source and one buffer of the target that store it. Two
members are of one *kind* if their shapes, their dtypes and the layouts of their buffers are equal,
and the same pairs of a source and a target position share a device. Names and device ids may
differ. Moves are planned once per kind, by mesh position. Receiver i of a class gets elements from
sender i + turn. Turns differ between members, so all replicas send equal amounts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from shardwright.ir.device_places import DevicePlace
from shardwright.ir.errors import InputError
from shardwright.ir.holdings import Box, TensorClasses
from shardwright.ir.mesh import Axes, Mesh
from shardwright.ir.model import Logical, Model
from shardwright.ir.parts import BufferLayout, TensorPart
from shardwright.ir.relays import Shape, StoredBox, boxes_at, shapes_of
from shardwright.ir.rules import PlacedBuffer, Rules
from shardwright.ir.stored import Stored, lacking_of

BUFFER = "buffer"
"""The name of the only buffer of a geometry's stored layout."""

WORD = re.compile(r"[^\W\d][\w./]*")
"""The names that the text of a layout can contain."""


@dataclass(frozen=True, eq=False)
class Geometry:
    """A buffer of a kind: its layout on a mesh. Tensors have numbers in place of names, and devices
    have positions in place of ids, so buffers of one geometry need only one plan."""

    axes: Axes
    shapes: tuple[Shape, ...]
    layout: BufferLayout
    dtype: str
    side: str  # "source" or "target", for errors
    buffer: str  # the name of the first buffer of this geometry, for errors
    names: tuple[str, ...]  # the names of the tensors in that buffer

    @cached_property
    def stored(self) -> Stored:
        """The stored layout of this buffer alone, with positions as device ids. Raises InputError,
        naming the buffer, for a layout that does not fit its tensors."""
        numbers = tuple(map(str, range(len(self.shapes))))
        try:
            return self._stored(numbers, self.layout)
        except InputError as error:
            named = f"{self.side}, {self.buffer}"
            raise self._said(error).named(named) from None

    def _stored(self, names: tuple[str, ...], layout: BufferLayout) -> Stored:
        mesh = Mesh(self.axes, None if self.axes else [0])
        shapes = dict(zip(names, self.shapes, strict=True))
        return Stored(mesh, shapes, {BUFFER: layout}, self.dtype, partial=True)

    def _said(self, error: InputError) -> InputError:
        """Return an error about the layout that shows the names of tensors in place of their
        numbers, if the text of a layout can contain these names."""
        if all(map(WORD.fullmatch, self.names)):
            try:
                self._stored(self.names, self.said)
            except InputError as named:
                return named
        return error

    @property
    def said(self) -> BufferLayout:
        """The layout with the names of tensors, for errors."""
        return renamed(self.layout, self.names)

    def buffer_shapes(self, padded: bool) -> list[Shape]:
        """Return the shape of the buffer at each position. `padded`: return, for all positions,
        the smallest shape into which the shapes of all positions fit."""
        return shapes_of(self.stored, self.stored.bound[BUFFER], padded)

    @cached_property
    def is_uniform(self) -> bool:
        """Whether the buffer has the same shape at all positions, without padding."""
        return len({*self.buffer_shapes(padded=False)}) == 1

    def held(self, tensor: str) -> Iterator[Box]:
        """Yield all boxes of a tensor, given by its index, at all positions."""
        return (box.box for boxes in self.exact[tensor] for box in boxes)

    @cached_property
    def exact(self) -> dict[str, list[list[StoredBox]]]:
        """For each tensor, the boxes at each position of a buffer without padding."""
        return self._boxes(padded=False)

    @cached_property
    def padded(self) -> dict[str, list[list[StoredBox]]]:
        """For each tensor, the boxes at each position of a buffer that is padded to one shape."""
        return self._boxes(padded=True)

    def _boxes(self, padded: bool) -> dict[str, list[list[StoredBox]]]:
        stored, shapes = self.stored, self.buffer_shapes(padded)
        found: dict[str, list[list[StoredBox]]] = {
            name: [[] for _ in shapes] for name in stored.tensors
        }
        for position, shape in enumerate(shapes):
            at = boxes_at(stored, stored.bound[BUFFER], shape, position)
            for name, box, base, views in at:
                found[name][position].append(StoredBox(position, box, 0, base, views))
        return found


@dataclass(frozen=True, eq=False)
class Kind:
    """The properties that all members of a kind share."""

    tensor: Logical
    source: Geometry
    target: Geometry
    numbers: tuple[str, str]  # the index of the tensor in the source and in the target buffer
    meeting: tuple[int, ...]  # for each target position, the source position on its device, or -1
    said: tuple[BufferLayout, BufferLayout]  # both layouts, with names of the first member


class ModelMember(NamedTuple):
    """A tensor of a model in one source buffer and one target buffer.

    `kind`: the index of its kind. `source`, `target`: the indices of the devices of both buffers
    among `Kinds.places`. `turn`: receiver i gets its elements from sender i + `turn`.
    """

    kind: int
    tensor: str
    source_buffer: str
    target_buffer: str
    source: int
    target: int
    turn: int = 0


class Kinds(NamedTuple):
    """The kinds of a model, its members, and the devices that its buffers are on."""

    kinds: tuple[Kind, ...]
    members: tuple[ModelMember, ...]
    places: tuple[DevicePlace, ...]


def kinds_of(model: Model, source: Rules, target: Rules) -> Kinds:
    """Return the kinds and members of a model, given the rules of both sides. Members are in the
    order of the model's tensors.

    Raises InputError for rules that do not fit the model, and for layouts that do not fit their
    tensors.
    """
    return _Sorting(model).run(_said(source, model, "source"), _said(target, model, "target"))


def _said(side: Rules, model: Model, argument: str) -> list[PlacedBuffer]:
    try:
        return side.place(model)
    except InputError as error:
        given = f"{argument}, {error.argument}" if error.argument else argument
        raise error.named(given) from None


class Homed(NamedTuple):
    """A buffer that stores a tensor."""

    buffer: str  # the name of the buffer
    number: str  # the index of the tensor in the buffer
    geometry: Geometry
    place: int  # the index of its devices among `Kinds.places`
    tensors: tuple[str, ...]  # the names of all its tensors

    @property
    def said(self) -> BufferLayout:
        """The layout of the buffer, with the names of its tensors."""
        return renamed(self.geometry.layout, self.tensors)


def renamed(layout: BufferLayout, names: tuple[str, ...]) -> BufferLayout:
    """Return a layout with the number of each tensor replaced by its name."""
    if isinstance(layout, TensorPart):
        return replace(layout, tensor=names[int(layout.tensor)])
    return replace(
        layout, parts=tuple(replace(part, tensor=names[int(part.tensor)]) for part in layout.parts)
    )


class _Sorting:
    def __init__(self, model: Model) -> None:
        self.model = model
        self.kinds: dict[tuple[object, ...], int] = {}
        self.found: list[Kind] = []
        self.places: dict[DevicePlace, int] = {}
        self.geometries: dict[tuple[object, ...], Geometry] = {}
        self.texts: dict[int, str] = {}
        self.meetings: dict[tuple[int, int], tuple[int, ...]] = {}

    def run(self, source: list[PlacedBuffer], target: list[PlacedBuffer]) -> Kinds:
        held: dict[str, Homed] = {}
        for tensor, home in self._homes(source, "source"):
            held.setdefault(tensor, home)
        wanted = [*self._homes(target, "target")]
        members = [self._member(*each, held) for each in wanted]
        self._check_owners(((name, home) for name, home in held.items()), "source")
        self._check_owners(wanted, "target")
        order = {name: number for number, name in enumerate(self.model.tensors)}
        members.sort(key=lambda member: order[member.tensor])
        return Kinds(tuple(self.found), tuple(members), tuple(self.places))

    def _member(self, name: str, wanted: Homed, held: Mapping[str, Homed]) -> ModelMember:
        home, tensor = held[name], self.model.tensors[name]
        meeting = self._meeting(home.place, wanted.place)
        key = tensor, id(home.geometry), id(wanted.geometry), home.number, wanted.number, meeting
        number = self.kinds.setdefault(key, len(self.found))
        if number == len(self.found):
            numbers = home.number, wanted.number
            said = home.said, wanted.said
            kind = Kind(tensor, home.geometry, wanted.geometry, numbers, meeting, said)
            self.found.append(kind)
        return ModelMember(number, name, home.buffer, wanted.buffer, home.place, wanted.place)

    def _homes(self, placed: Iterable[PlacedBuffer], side: str) -> Iterator[tuple[str, Homed]]:
        for each in placed:
            geometry = self._geometry(each, side)
            place = self.places.setdefault(each.place, len(self.places))
            for number, tensor in enumerate(each.tensors):
                yield tensor, Homed(each.name, str(number), geometry, place, each.tensors)

    def _check_owners(self, homes: Iterable[tuple[str, Homed]], side: str) -> None:
        """Raise InputError unless each element of each tensor is in some buffer."""
        by_tensor: dict[str, list[tuple[Geometry, str]]] = {}
        for name, home in homes:
            by_tensor.setdefault(name, []).append((home.geometry, home.number))
        checked = set()
        for name, every in by_tensor.items():
            key = tuple((id(geometry), number) for geometry, number in every)
            if key in checked:
                continue
            checked.add(key)
            held = (box for geometry, number in every for box in geometry.held(number))
            boxes, tensor = list(dict.fromkeys(held)), self.model.tensors[name]
            grid = TensorClasses.of(tensor.shape, boxes)
            lacking = ~grid.mask(boxes)
            if lacking.any():
                raise InputError(
                    "every element of a tensor must be on at least one device",
                    argument=f"{side}, {every[0][0].buffer}",
                    got=f"{lacking_of(grid, lacking)[1]} of {name} on no device",
                    expected="shards, parts or table entries that include them",
                )

    def _geometry(self, placed: PlacedBuffer, side: str) -> Geometry:
        tensors = [self.model.tensors[name] for name in placed.tensors]
        text = self.texts.get(id(placed.layout))
        if text is None:
            text = self.texts[id(placed.layout)] = str(placed.layout)
        dtype = tensors[0].dtype
        if any(tensor.dtype != dtype for tensor in tensors):
            raise InputError(
                "all tensors of a buffer must have the same dtype",
                argument=f"{side}, {placed.name}",
                got=", ".join(dict.fromkeys(tensor.dtype for tensor in tensors)),
                expected="one dtype",
            )
        shapes = tuple(tensor.shape for tensor in tensors)
        key = placed.place.axes, shapes, text, dtype, side
        if key not in self.geometries:
            self.geometries[key] = Geometry(
                *(placed.place.axes, shapes, placed.layout, dtype, side),
                *(placed.name, placed.tensors),
            )
        return self.geometries[key]

    def _meeting(self, source: int, target: int) -> tuple[int, ...]:
        """Return, for each target position, the source position of its device, or -1 if the device
        has none. `source`, `target`: indices of places."""
        key = source, target
        if key not in self.meetings:
            places = [*self.places]
            position = {device: n for n, device in enumerate(places[source].devices)}
            self.meetings[key] = tuple(position.get(d, -1) for d in places[target].devices)
        return self.meetings[key]
