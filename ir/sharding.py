"""A sharding: the axes that split each dimension of a tensor, major to minor.

A sharding also lists explicitly replicated axes, and unreduced axes, along which devices have
partial sums, maxima or minima. A dimension may be open, which lets propagation split it further,
and may have a priority, which orders propagation.

A `Sharding` is always in normal form: neighbouring sub-axes are merged, a sub-axis that spans its
axis becomes the axis, and replicated and unreduced axes are in mesh order, sub-axes by pre-size.
Equivalent shardings are therefore equal and have the same text.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

from shardwright.ir import axes as algebra
from shardwright.ir.axes import AxisRef
from shardwright.ir.errors import InputError, Where, check_type, in_a_line, one_of
from shardwright.ir.mesh import Digit, Mesh, as_integer

T = TypeVar("T")

Operator = Literal["sum", "max", "min"]  # the operator that reduces along unreduced axes
OPERATORS: tuple[Operator, ...] = get_args(Operator)

MAX_RANK = 8
"""The maximum rank of a tensor."""


@dataclass(frozen=True)
class DimSharding:
    """The split of one dimension. `str` returns Shardy's text, `{"x", ?}p2`."""

    axes: tuple[AxisRef, ...] = ()  # the axes that split the dimension, major to minor
    open: bool = False  # whether propagation may split it further
    priority: int | None = None  # 0 is the highest priority; None means 0 and is not printed

    def __post_init__(self) -> None:
        object.__setattr__(self, "axes", _all_of(self.axes, AxisRef, 'AxisRef("x")', "axes"))
        if self.priority is None:
            return
        priority = as_integer(self.priority)
        if priority is None or priority < 0:
            raise InputError(
                "a priority must be an integer of zero or more",
                got=self.priority,
                expected="p0, p1, p2, …",
                where=("priority",),
            )
        object.__setattr__(self, "priority", priority)
        if not self.axes and not self.open:
            raise InputError(
                "an empty closed dimension cannot have a priority: it would have no effect",
                got=self,
                expected=f"{{}} or {{?}}p{priority}",
                where=("priority",),
            )

    def __str__(self) -> str:
        inside = ", ".join([*map(str, self.axes), *("?" if self.open else "")])
        return f"{{{inside}}}" + ("" if self.priority is None else f"p{self.priority}")


@dataclass(frozen=True)
class Sharding:
    """A sharding on a mesh. `str` returns Shardy's text without the mesh.

    Axes that are not listed are also replicated; propagation may split along them, but not along
    the axes in `replicated`.
    """

    mesh: Mesh
    dims: tuple[DimSharding, ...]  # one per dimension of the tensor
    replicated: tuple[AxisRef, ...] = ()
    unreduced: tuple[AxisRef, ...] = ()  # the axes along which devices have partial sums
    # The operator of all unreduced axes, `sum` without any. It is not in `repr`, because the hashes
    # of modules use `repr`.
    operator: Operator = dataclasses.field(default="sum", repr=False)

    def __post_init__(self) -> None:
        check_type(self.mesh, Mesh, 'Mesh({"x": 2, "y": 3})', "mesh")
        mesh = self.mesh
        dims = _all_of(self.dims, DimSharding, 'DimSharding((AxisRef("x"),))', "dims")
        for field in ("replicated", "unreduced"):
            refs = _all_of(getattr(self, field), AxisRef, 'AxisRef("x")', field)
            object.__setattr__(self, field, refs)
        _check_refs(mesh, tuple(_placed(dims, self.replicated, self.unreduced)))
        object.__setattr__(self, "dims", tuple(_normal_dim(mesh, dim) for dim in dims))
        for field in ("replicated", "unreduced"):
            canonical = map(mesh.canonical, getattr(self, field))
            object.__setattr__(self, field, mesh.ordered(canonical))
        _check_operator(self.operator)
        if not self.unreduced:
            object.__setattr__(self, "operator", "sum")

    @property
    def rank(self) -> int:
        return len(self.dims)

    def parts(self, dim: int) -> int:
        """Return the number of shards along a dimension."""
        return math.prod(digit.size for digit in self.digits(dim))

    def digits(self, dim: int) -> tuple[Digit, ...]:
        """Return the digits of the mesh position that form the shard index along a dimension, major
        to minor."""
        return tuple(self.mesh.digit(ref) for ref in self.dims[dim].axes)

    def used(self) -> tuple[AxisRef, ...]:
        """Return the axis references that split dimensions, in the order of the dimensions."""
        return tuple(itertools.chain.from_iterable(dim.axes for dim in self.dims))

    def local_shape(self, shape: Iterable[int]) -> tuple[int, ...]:
        """Return the shape of the largest shard: extent ceildiv parts along each dimension."""
        extents = tuple(shape)
        sharding = self.for_rank(len(extents))
        return tuple(-(-extent // sharding.parts(i)) for i, extent in enumerate(extents))

    def for_rank(self, rank: int) -> Sharding:
        """Return this sharding for a tensor of rank `rank`. Raise InputError if its rank differs.

        As in Shardy, `[]` on a mesh without axes is a sharding for every rank.
        """
        if rank == self.rank:
            return self
        if self.mesh.is_maximal and self.rank == 0:
            return Sharding(self.mesh, (DimSharding(),) * rank)
        text = str(self)
        raise InputError(
            "there must be one dimension sharding for each dimension of the tensor",
            got=f"{_count(self.rank, 'dimension sharding')} for a tensor of rank {rank}",
            expected=_count(rank, "dimension sharding"),
            text=text,
            span=(0, text.index("]") + 1),
            where=("dims",),
        )

    def to_sdy(self) -> str:
        """Return the text of Shardy's attribute, with the name of the mesh, or with the mesh
        inline if it has no name."""
        mesh = f"@{self.mesh.name}" if self.mesh.name else f"mesh{self.mesh}"
        return f"#sdy.sharding<{mesh}, {self if self.mesh.axes or self.mesh.is_empty else '[]'}>"

    def __str__(self) -> str:
        operator = "" if self.operator == "sum" else self.operator
        named = (("replicated=", self.replicated), (f"unreduced={operator}", self.unreduced))
        return f"[{_listed(self.dims)}]" + "".join(
            f", {name}{{{_listed(refs)}}}" for name, refs in named if refs
        )


def _all_of(given: Iterable[T], kind: type[T], example: str, argument: str) -> tuple[T, ...]:
    """Return the given items as a tuple. Raise InputError unless all are of type `kind`."""
    if isinstance(given, Iterable) and not isinstance(given, str):
        items = tuple(given)
        for item in items:
            check_type(item, kind, example, argument)
        return items
    raise InputError(
        f"the value must be a sequence of {kind.__name__}",
        argument=argument,
        got=in_a_line(given),
        expected=f"({example}, …)",
    )


def _check_operator(operator: object) -> None:
    if operator not in OPERATORS:
        raise InputError(
            "unknown operator of unreduced axes",
            argument="operator",
            got=operator if isinstance(operator, str) and operator else repr(operator),
            expected=one_of(OPERATORS),
            where=("operator",),
        )


def _listed(items: Iterable[object]) -> str:
    return ", ".join(map(str, items))


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _placed(
    dims: tuple[DimSharding, ...], replicated: Iterable[AxisRef], unreduced: Iterable[AxisRef]
) -> Iterator[tuple[Where, AxisRef]]:
    """Yield every axis reference of a sharding with its path, in the order of the sharding's
    text."""
    for i, dim in enumerate(dims):
        for j, ref in enumerate(dim.axes):
            yield ("dims", i, "axes", j), ref
    for name, refs in (("replicated", replicated), ("unreduced", unreduced)):
        for j, ref in enumerate(refs):
            yield (name, j), ref


def _check_refs(mesh: Mesh, placed: tuple[tuple[Where, AxisRef], ...]) -> None:
    """Raise InputError unless every reference is to an axis of the mesh, no two references overlap,
    and all can coexist."""
    by_name: dict[str, list[tuple[Where, AxisRef]]] = {}
    for where, given in placed:
        try:
            ref = mesh.canonical(given)
        except InputError as error:
            error.where = where
            raise
        for earlier in by_name.setdefault(ref.name, []):
            _check_pair(mesh, earlier, (where, ref))
        by_name[ref.name].append((where, ref))


def _check_pair(mesh: Mesh, a: tuple[Where, AxisRef], b: tuple[Where, AxisRef]) -> None:
    (first, ref), (second, other) = a, b
    if ref == other:
        raise InputError(
            "an axis or sub-axis may be used only once",
            got=f"{ref} {_both(_said(first), _said(second))}",
            expected=f"{ref} in one place only",
            where=second,
        )
    got = f"{ref} in {_said(first)} and {other} in {_said(second)}"
    size = mesh.axis_size(ref.name)
    if algebra.overlaps(ref, other, mesh.sizes):
        raise InputError(
            "references to one axis must not overlap",
            got=got,
            expected="sub-axes that do not overlap",
            where=second,
        )
    if not algebra.can_coexist(ref, other, mesh.sizes):
        (_, end), (begin, _) = sorted((algebra.borders(ref, size), algebra.borders(other, size)))
        raise InputError(
            "all sub-axes of an axis must fit one factorization of its size",
            got=got,
            expected=f"a pre-size of the later sub-axis that is a multiple of {end}, not {begin}",
            where=second,
        )


def _both(first: str, second: str) -> str:
    return f"twice in {first}" if first == second else f"in {first} and in {second}"


def _said(where: Where) -> str:
    return f"dimension {where[1]}" if where[0] == "dims" else f"{where[0]}={{…}}"


def _normal_dim(mesh: Mesh, dim: DimSharding) -> DimSharding:
    refs = algebra.merged(map(mesh.canonical, dim.axes), mesh.sizes)
    return DimSharding(refs, dim.open, dim.priority)


def check_shape(shape: object, argument: str = "shape") -> tuple[int, ...]:
    """Return the shape as a tuple of integers. Raise InputError for anything but at most MAX_RANK
    positive integers."""
    if isinstance(shape, str) or not isinstance(shape, Iterable):
        raise InputError(
            "a shape must be a sequence of integers",
            argument=argument,
            got=repr(shape),
            expected="extents, for example (6, 6)",
        )
    given = tuple(shape)
    if len(given) > MAX_RANK:
        raise InputError(
            f"a tensor may have at most {MAX_RANK} dimensions",
            argument=argument,
            got=f"{len(given)} dimensions",
            expected=f"{MAX_RANK} or fewer",
            where=("shape",),
        )
    return tuple(_extent(extent, i, argument) for i, extent in enumerate(given))


def _extent(given: object, i: int, argument: str) -> int:
    extent = as_integer(given)
    if extent is None or extent < 1:
        raise InputError(
            "an extent must be an integer of at least 1",
            argument=argument,
            got=f"{given!r} for dimension {i}",
            expected="1, 2, 3, …",
            where=("shape", i),
        )
    return extent
