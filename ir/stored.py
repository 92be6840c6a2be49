"""Stored layouts: logical tensors, and the buffers in which each device of a mesh stores them."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from shardwright.ir.dim_cuts import DimCut
from shardwright.ir.drawn import Drawn
from shardwright.ir.dtypes import PACKED, STORED, dtype_of, itemsize
from shardwright.ir.errors import InputError, known_arguments, one_of
from shardwright.ir.given import mesh_of, shape_of, sharding_of
from shardwright.ir.holdings import Box, TensorClasses, box_of
from shardwright.ir.mesh import Mesh
from shardwright.ir.packed import layout_in_bytes, shapes_in_bytes
from shardwright.ir.parts import ONLY, BoundBuffer, BufferLayout, Stack, TensorPart, bind
from shardwright.ir.text.layout_text import layout_and_spans, parse_layout

# A bracketed text is a sharding if its axes are in quotes, else the layout of the only tensor.
SHARDING = re.compile(
    r"""\s*(?:\[(?![^"'?]*\{\s*[^\W\d])|[{(<#]|sdy\.|(?:jax\.sharding\.)?(?:P|PartitionSpec)\s*\()"""
)
"""The beginning of the text of a sharding, which is never the beginning of a stored layout."""


_KEYS = ("mesh", "dtype", "tensors", "buffers")
_TOML = "mesh, dtype, and the tables tensors and buffers, as str(sw.Stored(…)) has them"


@dataclass(frozen=True, init=False, repr=False)
class Stored(Drawn):
    """A stored layout: logical tensors of one dtype on a mesh, and the buffers that store them.

    `str` returns TOML, which `parse` reads. `ir/parts.py` describes the text of layouts.
    """

    mesh: Mesh
    tensors: dict[str, tuple[int, ...]]  # the shape of each tensor, by name
    dtype: str
    buffers: dict[str, BufferLayout]  # the layout of each buffer, by name
    bound: dict[str, BoundBuffer] = field(init=False, repr=False, compare=False)

    @known_arguments
    def __init__(
        self,
        mesh: object,
        tensors: Mapping[str, object],
        layout: object,
        dtype: object,
        *,
        shapes: Mapping[str, object] | None = None,
        partial: bool = False,
    ) -> None:
        """Read the arguments and check them.

        `tensors`: the shape of each logical tensor, in elements. `layout`: for each buffer name a
        layout (`sw.stack`, `sw.cut`, their text) or a sharding of the tensor with that name; or a
        single layout. `shapes`: the shape, in elements, that a buffer must have on every device.
        `partial`: whether to allow elements that no device stores. Raises InputError, with the
        place in the layout, for buffers of a different shape, elements on no device, unknown shards
        in a table, factors that do not multiply to the extent, and cuts between the two elements of
        a byte.
        """
        set_ = object.__setattr__
        set_(self, "mesh", mesh_of(mesh, "mesh"))
        set_(self, "tensors", {name: shape_of(shape) for name, shape in tensors.items()})
        set_(self, "dtype", dtype_of(dtype, STORED))
        given = layout if isinstance(layout, Mapping) else {"": layout}
        buffers, bound = {}, {}
        for key, each in given.items():
            found, text = self._read(key, each)
            name = key or (found.tensor if isinstance(found, TensorPart) else "buffer")
            buffers[name], bound[name] = found, self._bound(name, found, text)
        set_(self, "buffers", buffers)
        set_(self, "bound", bound)
        if not partial:
            self._check_owners()
        for name, shape in (shapes or {}).items():
            self._check_shape(name, shape_of(shape))
        self.in_bytes  # noqa: B018  (raises InputError for a packed dtype whose pairs are apart)

    @staticmethod
    def parse(text: str, argument: str = "text") -> Stored:
        """Parse a stored layout in TOML, with keys `mesh`, `dtype`, `tensors` and `buffers`. A
        table `learned`, which states the loader that the layout was learned from, is ignored.

        Raises InputError for a text that is not TOML, and for missing or unknown keys.
        """
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InputError(
                "the text must be TOML", argument=argument, got=error, expected=_TOML
            ) from None
        table.pop("learned", None)
        if {*table} != {*_KEYS} or not all(isinstance(table[k], dict) for k in _KEYS[2:]):
            raise InputError(
                "a stored layout must have the keys mesh, dtype, tensors and buffers",
                argument=argument,
                got=", ".join(table) or "none",
                expected=_TOML,
            )
        return Stored(table["mesh"], table["tensors"], table["buffers"], table["dtype"])

    @staticmethod
    def read(path: str | Path) -> Stored:
        """Return the stored layout in a TOML file. Raise InputError if the file cannot be read or
        parsed."""
        try:
            return Stored.parse(Path(path).read_text(encoding="utf-8"), str(path))
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8"
            raise InputError(
                "the file cannot be read", argument=str(path), got=reason, expected=_TOML
            ) from None

    @property
    def itemsize(self) -> int:
        """The number of bytes per element. Raises InputError for a packed dtype; use `in_bytes`
        for such a layout."""
        return itemsize(self.dtype)

    @cached_property
    def in_bytes(self) -> Stored:
        """The stored layout of the bytes of a packed dtype, with dtype uint8. For any other dtype,
        this layout itself. Raises InputError if a cut separates the two elements of a byte."""
        if self.dtype not in PACKED:
            return self
        shapes = shapes_in_bytes(self.tensors)
        layouts = {}
        for name, layout in self.buffers.items():
            try:
                layouts[name] = layout_in_bytes(layout, self.bound[name], shapes, self.mesh)
            except InputError as error:
                raise _located(error, str(layout), name) from None
        return Stored(self.mesh, shapes, layouts, "uint8")

    def shape(self, buffer: str, device: int) -> tuple[int, ...]:
        """Return the shape of a buffer on a device, in elements. Raise InputError for a device
        outside the mesh."""
        return self.bound[buffer].shape(self._position(device))

    def shards(
        self, tensors: Mapping[str, npt.NDArray[np.generic]], fill: int = 0
    ) -> dict[int, dict[str, npt.NDArray[np.generic]]]:
        """Return the buffers of all devices, by device id and buffer name.

        `tensors`: the whole logical tensors, by name. `fill`: the value of padding.
        """
        return {
            device: {
                name: self._filled(buffer, position, tensors, fill)
                for name, buffer in self.bound.items()
            }
            for position, device in enumerate(self.mesh.device_ids)
        }

    def boxes(self, tensor: str, position: int) -> list[Box]:
        """Return the boxes of a tensor that all buffers store at a mesh position."""
        rank = len(self.tensors[tensor])
        parts = (part for buffer in self.bound.values() for part in buffer.parts)
        found = (box_of(part, position, rank) for part in parts if part.tensor == tensor)
        return [box for box in found if box is not None]

    @cached_property
    def holdings(self) -> dict[str, list[list[Box]]]:
        """The boxes of each tensor at each mesh position, by the name of the tensor."""
        positions = range(self.mesh.size)
        return {name: [self.boxes(name, each) for each in positions] for name in self.tensors}

    @property
    def has_copies(self) -> bool:
        """Whether any element of a tensor is stored more than once."""
        boxes = (
            part.box(position)
            for buffer in self.bound.values()
            for part in buffer.parts
            for position in range(self.mesh.size)
        )
        stored = sum(math.prod(max(high - low, 0) for low, high in box) for box in boxes)
        return stored > sum(map(math.prod, self.tensors.values()))

    def _position(self, device: int) -> int:
        if device in self.mesh.device_ids:
            return self.mesh.device_ids.index(device)
        raise InputError(
            "the mesh has no such device",
            argument="device",
            got=device,
            expected=one_of(map(str, self.mesh.device_ids)),
        )

    def _read(self, name: str, given: object) -> tuple[BufferLayout, str]:
        """Return the layout of a buffer, and its text for errors to point into."""
        if isinstance(given, TensorPart | Stack):
            found, text = given, str(given)
        elif isinstance(given, str) and not SHARDING.match(given):
            found, text = parse_layout(given, name or "layout"), given
        else:
            tensor = self._named(name)
            found = self._sharded(tensor, given, name or "layout")
            text = str(found)
        if isinstance(found, TensorPart) and found.tensor == ONLY:
            found = replace(found, tensor=self._named(name))
        return found, text

    def _named(self, buffer: str) -> str:
        """Return the name of the tensor that has the buffer's name, or else of the only tensor.
        Raise InputError if there is neither."""
        if buffer in self.tensors:
            return buffer
        if len(self.tensors) == 1:
            return next(iter(self.tensors))
        raise InputError(
            "if a layout names no tensor, its buffer must have the name of a tensor",
            argument="layout",
            got=buffer or "a buffer without a name",
            expected=one_of(self.tensors),
        )

    def _sharded(self, tensor: str, given: object, argument: str) -> TensorPart:
        shape = self.tensors[tensor]
        sharding, split, _ = sharding_of(given, self.mesh, shape, argument, only=True)
        if sharding.unreduced:
            raise InputError(
                "the sharding of a stored layout must not have partial sums",
                argument=argument,
                got=sharding,
                expected="a sharding without unreduced axes",
            )
        dims = sharding.for_rank(len(shape)).dims
        nested = split == "nested"
        cuts = (
            DimCut(dim.axes, "nested" if nested and len(dim.axes) > 1 else "flat") for dim in dims
        )
        return TensorPart(tensor, tuple(cuts))

    def _bound(self, name: str, layout: BufferLayout, text: str) -> BoundBuffer:
        try:
            return bind(layout, self.tensors, self.mesh)
        except InputError as error:
            raise _located(error, text, name) from None

    def _check_owners(self) -> None:
        """Raise InputError if any element of a tensor is on no device."""
        for tensor, shape in self.tensors.items():
            every = [box for boxes in self.holdings[tensor] for box in boxes]
            grid = TensorClasses.of(shape, every)
            lacking = ~grid.mask(every)
            if not lacking.any():
                continue
            name, number = self._first(tensor)
            dim, said = lacking_of(grid, lacking)
            raise _located(
                InputError(
                    "every element of a tensor must be on at least one device",
                    got=f"{said} of {tensor} on no device",
                    expected="shards, parts or table entries that include them",
                    where=("parts", number, "dims", dim),
                ),
                str(self.buffers[name]) if name in self.buffers else "",
                name,
            )

    def _first(self, tensor: str) -> tuple[str, int]:
        """Return the name of the buffer that contains the first part of a tensor, and the number of
        the part in it."""
        for name, buffer in self.bound.items():
            for number, part in enumerate(buffer.parts):
                if part.tensor == tensor:
                    return name, number
        return tensor, 0

    def _check_shape(self, name: str, shape: tuple[int, ...]) -> None:
        """Raise InputError unless a buffer has this shape on every device."""
        if name not in self.bound:
            raise InputError(
                "a key of shapes must be the name of a buffer", argument="shapes", got=name,
                expected=one_of(self.bound),
            )  # fmt: skip
        for position, device in enumerate(self.mesh.device_ids):
            found = self.bound[name].shape(position)
            if found != shape:
                raise InputError(
                    "the parts of a buffer must fill the shape given for it",
                    argument=name,
                    got=f"{found} on device {device}",
                    expected=str(shape),
                    text=str(self.buffers[name]),
                    span=(0, len(str(self.buffers[name]))),
                )

    def _filled(
        self,
        buffer: BoundBuffer,
        position: int,
        tensors: Mapping[str, npt.NDArray[np.generic]],
        fill: int,
    ) -> npt.NDArray[np.generic]:
        dtype = np.result_type(*(tensors[part.tensor].dtype for part in buffer.parts))
        result = np.full(buffer.shape(position), fill, dtype=dtype)
        for part, start in zip(buffer.parts, buffer.starts(position), strict=False):
            box = part.box(position)
            place = [slice(0, high - low) for low, high in box]
            if not place:
                result[()] = tensors[part.tensor]
            elif all(low < high for low, high in box):
                low, high = box[buffer.dim]
                place[buffer.dim] = slice(start, start + high - low)
                result[tuple(place)] = tensors[part.tensor][part.indices(box)]
        return result

    def __hash__(self) -> int:
        return hash(str(self))

    def __repr__(self) -> str:
        listed = ", ".join(f"{name} {each}" for name, each in self.buffers.items())
        return f"<Stored: {self.dtype} {listed}, on {self.mesh.size} devices>"

    def __str__(self) -> str:
        shapes = (f"{_key(name)} = {list(shape)}" for name, shape in self.tensors.items())
        layouts = (f"{_key(name)} = {_quoted(str(each))}" for name, each in self.buffers.items())
        return "\n".join(
            [
                f"mesh = {_quoted(str(self.mesh))}",
                f"dtype = {_quoted(self.dtype)}",
                f"tensors = {{{', '.join(shapes)}}}",
                "[buffers]",
                *layouts,
            ]
        )


def lacking_of(grid: TensorClasses, lacking: npt.NDArray[np.bool_]) -> tuple[int, str]:
    """Return the dimension along which elements are missing, and text that names their range.

    `lacking`: the classes that are missing. If these are not ranges of one dimension with all other
    dimensions whole, the text names the first missing element, and the dimension is 0.
    """
    for dim, along in enumerate(grid.dims):
        others = tuple(axis for axis in range(lacking.ndim) if axis != dim)
        gone: npt.NDArray[np.bool_] = np.asarray(lacking.all(axis=others))
        if (lacking == np.expand_dims(gone, others)).all():
            ranges = (f"{low} to {high}" for low, high in along.ranges(gone)[:4])
            return dim, f"elements {', '.join(ranges)} of dimension {dim}"
    places = np.argwhere(lacking)[0].tolist()
    first = [
        int(along.ends[np.flatnonzero(along.classes == place)[0]])
        for along, place in zip(grid.dims, places, strict=True)
    ]
    return 0, f"element {tuple(first)}"


def _located(error: InputError, text: str, argument: str) -> InputError:
    """Return the error with the span of its place, or of the nearest place around it, in the text
    of a layout."""
    if not text:
        return error.named(argument)
    spans = layout_and_spans(text)[1]
    where = error.where
    while where and where not in spans:
        where = where[:-1]
    return error.within(text, spans[where], argument)


def _quoted(text: str) -> str:
    return json.dumps(text) if "'" in text else f"'{text}'"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[\w-]+", name, re.ASCII) else json.dumps(name)
