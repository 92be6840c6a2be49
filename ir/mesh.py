"""A mesh: devices viewed as an n-dimensional array with named axes, major to minor.

`device_ids[p]` is the id of the device at flat position `p`. Consecutive ids are stored as a
`range`, so the size of a `Mesh` object does not depend on the number of its devices.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shardwright.ir import axes as algebra
from shardwright.ir.axes import AxisRef
from shardwright.ir.errors import InputError, in_a_line, one_of, suggested
from shardwright.ir.foreign import door

if TYPE_CHECKING:
    from shardwright.ir.sharding import Sharding

__all__ = ["AxisRef", "Digit", "Mesh"]

Axes = tuple[tuple[str, int], ...]
NAME = re.compile(r"[A-Za-z0-9_$.-]+")
NAME_CHARACTERS = "letters, digits, _, $, . or -"


@dataclass(frozen=True)
class Digit:
    """One digit of a flat mesh position. Its value is `(position // stride) % size`."""

    stride: int
    size: int


@dataclass(frozen=True, init=False)
class Mesh:
    """Named axes over devices. `str` returns Shardy's text, `<["x"=2, "y"=3]>`.

    A mesh without axes has one device, `<[], device_ids=[3]>`, or none: the empty mesh `<[]>`. If
    one side of a reshard is on the empty mesh, its tensor is replicated over all devices of the
    other side.
    """

    axes: Axes
    device_ids: range | tuple[int, ...]  # by position; a range if the ids are consecutive
    name: str | None = field(compare=False)  # the name in the text `@name = <[...]>`

    def __init__(
        self,
        axes: Mapping[str, int] | Iterable[tuple[str, int]],
        device_ids: Iterable[int] | None = None,
        name: str | None = None,
    ) -> None:
        object.__setattr__(self, "axes", _checked_axes(_pairs(axes)))
        object.__setattr__(self, "device_ids", _checked_ids(device_ids, self.axes))
        object.__setattr__(self, "name", _checked_name(name))

    @classmethod
    def parse(cls, text: str) -> Mesh:
        """Parse a mesh from Shardy's text, which `str` returns, or from the shorthand `x=2,y=3`."""
        return _readers().text(text)

    @classmethod
    def of(cls, given: object) -> Mesh:
        """Read a mesh given as a string, a dict of axes, a JAX mesh or a DeviceMesh."""
        return _readers().mesh(given)

    def sharding(self, given: object, rank: int | None = None) -> Sharding:
        """Read a sharding on this mesh, given as a string such as `[{"x"}, {"y", ?}p2]`, a
        PartitionSpec or placements.

        `rank`: the rank of the tensor, for placements and strings that do not state it. Raises
        InputError for anything else.
        """
        return _readers().sharding(given, self, rank)

    @property
    def size(self) -> int:
        return len(self.device_ids)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.axes)

    @property
    def is_iota(self) -> bool:
        """Whether the devices are 0, 1, 2, … in this order."""
        return isinstance(self.device_ids, range) and self.device_ids.start == 0

    @property
    def is_maximal(self) -> bool:
        """Whether this mesh has no axes but one device, which therefore holds whole tensors."""
        return not self.axes

    @property
    def is_empty(self) -> bool:
        """Whether this mesh has no devices."""
        return not self.device_ids

    @functools.cached_property
    def sizes(self) -> dict[str, int]:
        """The size of each axis by its name, major to minor."""
        return dict(self.axes)

    def axis_size(self, name: str) -> int:
        if name not in self.sizes:
            raise unknown_axis(name, self)
        return self.sizes[name]

    def full_size(self, ref: AxisRef) -> int:
        """Return the size of a full axis or of a sub-axis. Raise InputError for an unknown axis."""
        return self.axis_size(ref.name) if ref.size is None else ref.size

    def digit(self, ref: AxisRef) -> Digit:
        """Return the digit of the flat position whose value is the coordinate along an axis
        reference."""
        size = self.axis_size(ref.name)
        minor = math.prod(size for _, size in self.axes[self.names.index(ref.name) + 1 :])
        if ref.pre is None or ref.size is None:
            return Digit(minor, size)
        return Digit(minor * (size // (ref.pre * ref.size)), ref.size)

    def canonical(self, ref: AxisRef) -> AxisRef:
        """Return the reference in normal form: a sub-axis that spans its axis becomes the full
        axis.

        Raises InputError for an unknown axis, or a sub-axis that does not divide its axis.
        """
        size = self.axis_size(ref.name)
        algebra.check_divides(ref, size)
        return AxisRef(ref.name) if ref.size == size else ref

    def ordered(self, refs: Iterable[AxisRef]) -> tuple[AxisRef, ...]:
        """Return references in the order of the mesh, sub-axes of one axis by pre-size, with
        neighbouring sub-axes merged."""
        place = {name: i for i, name in enumerate(self.names)}
        in_order = sorted(refs, key=lambda ref: (place[ref.name], ref.pre or 1))
        return algebra.merged(in_order, self.sizes)

    def refine(self, refs: Iterable[AxisRef]) -> tuple[AxisRef, ...]:
        """Return the pieces into which the borders of `refs` cut the axes, major to minor.

        Each reference is then a product of consecutive pieces. Raises InputError if references to
        one axis cannot coexist.
        """
        cuts = {name: {1, size} for name, size in self.axes}
        for ref in map(self.canonical, refs):
            cuts[ref.name] |= set(algebra.borders(ref, self.sizes[ref.name]))
        return tuple(
            piece
            for name, size in self.axes
            for piece in algebra.pieces(name, size, sorted(cuts[name]))
        )

    def refs_free_of(self, refs: Iterable[AxisRef]) -> tuple[AxisRef, ...]:
        """Return the axes and sub-axes that `refs` do not contain, in mesh order and as large as
        possible, without axes of size 1. Together with `refs` they cover the whole mesh."""
        taken = tuple(map(self.canonical, refs))
        free = (
            piece
            for piece in self.refine(taken)
            if self.full_size(piece) > 1
            and not any(algebra.overlaps(piece, ref, self.sizes) for ref in taken)
        )
        return algebra.merged(free, self.sizes)

    def __str__(self) -> str:
        axes = ", ".join(f'"{name}"={size}' for name, size in self.axes)
        if self.is_empty or (self.is_iota and not self.is_maximal):
            return f"<[{axes}]>"
        return f"<[{axes}], device_ids=[{', '.join(map(str, self.device_ids))}]>"


@dataclass(frozen=True)
class Readers:
    """The functions that implement `Mesh.parse`, `Mesh.of` and `Mesh.sharding`."""

    text: Callable[[str], Mesh]
    mesh: Callable[[object], Mesh]
    sharding: Callable[[object, Mesh, int | None], Sharding]  # the last argument is the rank


_registered: list[Readers] = []


def read_by(readers: Readers) -> None:
    """Register the functions that implement `Mesh.parse`, `Mesh.of` and `Mesh.sharding`.

    Their modules import this one, so the package registers them when it is imported.
    """
    _registered[:] = [readers]


def _readers() -> Readers:
    (readers,) = _registered
    return readers


UNKNOWN_AXIS = "an axis must exist in the mesh"


def unknown_axis(name: str, mesh: Mesh) -> InputError:
    return InputError(
        UNKNOWN_AXIS + suggested(name, mesh.names),
        got=f'"{name}"',
        expected=one_of(f'"{known}"' for known in mesh.names),
    )


def with_target_mesh(error: InputError) -> InputError:
    """Return an error about a target on the source's mesh. If the error is about an unknown axis,
    it also suggests the argument `target_mesh`."""
    if not error.rule.startswith(UNKNOWN_AXIS):
        return error
    expected = f"{error.expected}; or a target_mesh, if the target is on a different mesh"
    again = InputError(
        error.rule, argument=error.argument, got=error.got, expected=expected, where=error.where
    )
    return again if error.text is None else again.within(error.text, error.span)


def _pairs(axes: object) -> tuple[tuple[str, int], ...]:
    """Return the (name, size) pairs of the given axes. Raise InputError for anything else."""
    given = axes.items() if isinstance(axes, Mapping) else axes
    pairs = tuple(given) if isinstance(given, Iterable) else (given,)
    if all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
        return pairs
    raise InputError(
        "every axis of a mesh must have a name and a size",
        argument="axes",
        got=in_a_line(axes),
        expected=door(axes, ["Mesh"]) or '{"x": 2, "y": 3}, major to minor',
    )


def _checked_axes(pairs: tuple[tuple[str, int], ...]) -> Axes:
    axes: list[tuple[str, int]] = []
    seen: set[str] = set()
    for i, (name, size) in enumerate(pairs):
        where = ("axes", i)
        if name in seen:
            raise InputError(
                "axis names must be distinct",
                got=f'"{name}" twice',
                expected="a different name",
                where=(*where, "name"),
            )
        algebra.check_name(name, (*where, "name"))
        axes.append((name, _checked_size(size, (*where, "size"))))
        seen.add(name)
    return tuple(axes)


def _checked_size(size: object, where: tuple[str | int, ...]) -> int:
    number = as_integer(size)
    if number is None or number < 1:
        raise InputError(
            "an axis size must be an integer of at least 1",
            got=repr(size),
            expected="1, 2, 3, …",
            where=where,
        )
    return number


def as_integer(value: object) -> int | None:
    """Return a Python or numpy integer as an int. Return None for booleans and all other values."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def _checked_ids(device_ids: Iterable[int] | None, axes: Axes) -> range | tuple[int, ...]:
    size = math.prod(size for _, size in axes)
    if device_ids is None:
        return range(size if axes else 0)
    if not isinstance(device_ids, Iterable):
        raise InputError(
            "device_ids must be a sequence of integers",
            got=in_a_line(device_ids),
            expected="one id per position, for example [1, 0]",
            where=("device_ids",),
        )
    ids = _checked_range(device_ids) or _checked_each(tuple(device_ids))
    if len(ids) != size:
        raise InputError(
            "there must be one device id for each position of the mesh",
            got=f"{len(ids)} device ids",
            expected=f"{size}, {_product(axes)}",
            where=("device_ids",),
        )
    return ids


def _checked_range(ids: Iterable[int]) -> range | None:
    """Return the ids unchanged if they are a range of step 1, else None: the ids of such a range
    need not be checked one by one. Raise InputError if the range has a negative id."""
    if not isinstance(ids, range) or ids.step != 1:
        return None
    if ids.start < 0:
        raise _negative_id(ids.start, 0)
    return ids


def _product(axes: Axes) -> str:
    if not axes:
        return "because a mesh without axes is one device"
    return "the product of " + ", ".join(f'"{name}"={size}' for name, size in axes)


def _checked_each(ids: tuple[object, ...]) -> range | tuple[int, ...]:
    """Return the ids, as a range if they are consecutive and ascending. Raise InputError unless
    they are distinct integers of at least 0."""
    numbers: list[int] = []
    seen: set[int] = set()
    for i, given in enumerate(ids):
        number = as_integer(given)
        if number is None:
            raise InputError(
                "a device id must be an integer",
                got=repr(given),
                expected="0, 1, 2, …",
                where=("device_ids", i),
            )
        if number < 0:
            raise _negative_id(number, i)
        if number in seen:
            raise InputError(
                "device ids must be distinct",
                got=f"{number} twice",
                expected="each id only once",
                where=("device_ids", i),
            )
        numbers.append(number)
        seen.add(number)
    ascending = range(numbers[0], numbers[0] + len(numbers)) if numbers else range(0)
    return ascending if numbers == list(ascending) else tuple(numbers)


def _negative_id(number: int, i: int) -> InputError:
    return InputError(
        "a device id must be zero or more",
        got=number,
        expected="0, 1, 2, …",
        where=("device_ids", i),
    )


def _checked_name(name: str | None) -> str | None:
    if name is None or (isinstance(name, str) and NAME.fullmatch(name)):
        return name
    raise InputError(
        "the name of a mesh must be plain",
        got=repr(name),
        expected=NAME_CHARACTERS,
        where=("name",),
    )
