"""A reshard: one tensor, how it is sharded, and how it shall be."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from shardwright.ir.dtypes import itemsize
from shardwright.ir.errors import InputError, check_type, one_of
from shardwright.ir.mesh import as_integer
from shardwright.ir.sharding import Sharding
from shardwright.ir.unreduced import NONE, Fate

SPLITS = ("flat", "nested")  # how extents that do not divide are cut; `layout` defines both
MAX_RANK = 8


@dataclass(frozen=True)
class Reshard:
    """A tensor's shape and element type, its source and its target sharding.

    Of axes that are unreduced in the source only, the target has the terms reduced; along those
    that are so in the target only, the device of coordinate 0 has the value, and every other one
    what changes nothing under the operator. `transposed`: the reshard moves cotangents, back from
    where another one put its results. Then a target has its every term from the term at its
    coordinates along what stays, a copy for each, and of axes that are unreduced in the source only
    the terms of coordinate 0 are read.
    """

    shape: tuple[int, ...]  # extents of at least 1, at most eight
    dtype: str
    source: Sharding
    target: Sharding
    source_split: str = "flat"
    target_split: str = "flat"
    # Not in `repr`, of which modules have hashes; no module of those backends has terms.
    transposed: bool = field(default=False, repr=False)
    fate: Fate = field(init=False, repr=False, compare=False)  # what becomes of unreduced axes

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", check_shape(self.shape))
        itemsize(self.dtype)
        for side in ("source", "target"):
            sharding: Sharding = getattr(self, side)
            check_type(sharding, Sharding, """mesh.sharding('[{"x"}, {}]')""", side)
            object.__setattr__(self, side, _of_rank(sharding, self.rank, side))
            _check_split(getattr(self, f"{side}_split"), f"{side}_split")
        _give_devices(self)
        unreduced = self.source.unreduced or self.target.unreduced
        object.__setattr__(self, "fate", Fate.of(self.source, self.target) if unreduced else NONE)
        _check_sum(self)
        _check_bytes(self)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes an element takes."""
        return itemsize(self.dtype)

    @property
    def adds(self) -> bool:
        """Whether terms are reduced: some axes are unreduced before and not after."""
        return bool(self.fate.reduced) and not self.transposed

    @property
    def places(self) -> bool:
        """Whether one holder keeps a value: some axes are unreduced after and not before."""
        return bool(self.fate.new) and not self.transposed

    @property
    def reads_one(self) -> bool:
        """Whether of some terms only those of coordinate 0 are read: the transpose of `places`."""
        return bool(self.fate.reduced) and self.transposed

    @property
    def extremum(self) -> str:
        """The operator, `max` or `min`, by which terms are reduced or made; "" for none.

        Then there is no derivative: maxima have none where terms are equal, and terms that have no
        value are infinite.
        """
        operators = (self.source.operator,) * self.adds + (self.target.operator,) * self.places
        return next((each for each in operators if each != "sum"), "")

    @property
    def moving(self) -> Reshard:
        """The reshard without what is done in place at its end: of new unreduced axes, along which
        its devices are replicas."""
        target = self.target
        if not self.fate.new:
            return self
        kept = Sharding(
            target.mesh, target.dims, target.replicated, self.fate.kept, self.source.operator
        )
        return replace(self, target=kept)

    @property
    def nbytes(self) -> int:
        """Bytes the whole tensor takes."""
        return math.prod(self.shape) * self.itemsize


def check_shape(shape: object, argument: str = "shape") -> tuple[int, ...]:
    """Return the shape as a tuple of integers; an InputError unless it is one."""
    if isinstance(shape, str) or not isinstance(shape, Iterable):
        raise InputError(
            "a shape must be a sequence of integers",
            argument=argument,
            got=repr(shape),
            expected="extents, as (6, 6)",
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


def _of_rank(sharding: Sharding, rank: int, argument: str) -> Sharding:
    try:
        return sharding.for_rank(rank)
    except InputError as error:
        raise error.named(argument) from None


def _give_devices(reshard: Reshard) -> None:
    """Replicate a side on the empty mesh on the devices of the other side."""
    sides = (("source", reshard.source, reshard.target), ("target", reshard.target, reshard.source))
    for side, own, other in sides:
        if own.mesh.is_empty and other.mesh.is_empty:
            raise InputError(
                "the empty mesh has no devices of its own, so that one side needs others",
                argument=side,
                got=f"{own.mesh} on both sides",
                expected="a mesh of devices on either side, as <[], device_ids=[0]>",
            )
        if own.mesh.is_empty:
            object.__setattr__(reshard, side, Sharding(other.mesh, own.dims))


def _check_sum(reshard: Reshard) -> None:
    """Raise InputError for booleans that are added: they have no sum."""
    adds = reshard.adds and reshard.source.operator == "sum"
    places = reshard.places and reshard.target.operator == "sum"
    if reshard.dtype == "bool" and (adds or places):
        raise InputError(
            "partial sums are added, and booleans have no sum",
            argument="dtype",
            got="bool",
            expected="an integer or a floating dtype, as int8; or unreduced=max{…}",
        )


def _check_split(split: str, argument: str) -> None:
    if split not in SPLITS:
        raise InputError(
            "the split must be known",
            argument=argument,
            got=split or repr(split),
            expected=one_of(SPLITS),
        )


def _check_bytes(reshard: Reshard) -> None:
    """Check that all a reshard could move is counted in 64 bits, so that no count is wrong."""
    receivers = reshard.target.mesh.size
    if reshard.nbytes * receivers < 2**63:
        return
    raise InputError(
        "the tensor, once for each device of the target, must take fewer than 2**63 bytes",
        argument="shape",
        got=f"{reshard.nbytes} bytes for {receivers} device{'s' * (receivers != 1)}",
        expected=f"a tensor of at most {(2**63 - 1) // receivers} bytes",
        where=("shape",),
    )
