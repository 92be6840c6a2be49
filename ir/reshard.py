"""A reshard: one tensor, how it is sharded, and how it shall be."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from shardwright.ir import axes as algebra
from shardwright.ir.dtypes import itemsize
from shardwright.ir.errors import InputError, check_type, one_of
from shardwright.ir.mesh import as_integer
from shardwright.ir.sharding import Sharding

SPLITS = ("flat", "nested")  # how extents that do not divide are cut; `layout` defines both
MAX_RANK = 8


@dataclass(frozen=True)
class Reshard:
    """A tensor's shape and element type, its source and its target sharding."""

    shape: tuple[int, ...]  # extents of at least 1, at most eight
    dtype: str
    source: Sharding
    target: Sharding
    source_split: str = "flat"
    target_split: str = "flat"

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", check_shape(self.shape))
        itemsize(self.dtype)
        for side in ("source", "target"):
            sharding: Sharding = getattr(self, side)
            check_type(sharding, Sharding, """mesh.sharding('[{"x"}, {}]')""", side)
            object.__setattr__(self, side, _of_rank(sharding, self.rank, side))
            _check_split(getattr(self, f"{side}_split"), f"{side}_split")
        _give_devices(self)
        _check_unreduced(self.source, self.target)
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
        return set(self.source.unreduced) != set(self.target.unreduced)

    @property
    def nbytes(self) -> int:
        """Bytes the whole tensor takes."""
        return math.prod(self.shape) * self.itemsize


def check_shape(shape: object, argument: str = "shape") -> tuple[int, ...]:
    """The shape as a tuple of integers; an InputError unless it is one."""
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
    """A side on the empty mesh is replicated on the devices of the other side."""
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


def _check_split(split: str, argument: str) -> None:
    if split not in SPLITS:
        raise InputError(
            "the split must be known",
            argument=argument,
            got=split or repr(split),
            expected=one_of(SPLITS),
        )


def _check_unreduced(source: Sharding, target: Sharding) -> None:
    """What is unreduced after is unreduced before, along an axis of the same size."""
    _check_operators(source, target)
    for ref in target.unreduced:
        size = source.mesh.sizes.get(ref.name)
        if size == target.mesh.sizes[ref.name] and any(
            algebra.contains(outer, ref, source.mesh.sizes) for outer in source.unreduced
        ):
            continue
        raise InputError(
            "the unreduced axes of the target must be unreduced in the source too",
            argument="target",
            got=f'{ref} of "{ref.name}"={target.mesh.sizes[ref.name]}',
            expected=_unreduced_choice(source),
        )


def _check_operators(source: Sharding, target: Sharding) -> None:
    """What stays unreduced has one operator before and after."""
    if source.unreduced and target.unreduced and source.operator != target.operator:
        raise InputError(
            "the operator of axes that stay unreduced must stay what it is",
            argument="target",
            got=f"{target}, of {source}",
            expected=f"unreduced={'' if source.operator == 'sum' else source.operator}{{…}}",
        )


def _check_bytes(reshard: Reshard) -> None:
    """All that a reshard could move is counted in 64 bits, so that no count is ever wrong."""
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


def _unreduced_choice(source: Sharding) -> str:
    """What of the source a target may leave unreduced."""
    if not source.unreduced:
        return "no unreduced axes, as in the source"
    return "a part of " + ", ".join(
        f'{ref} of "{ref.name}"={source.mesh.axis_size(ref.name)}' for ref in source.unreduced
    )
