"""A reshard: one tensor, its source sharding, and its target sharding."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from shardwright.ir.dtypes import dtype_of, itemsize
from shardwright.ir.errors import InputError, known_arguments, unknown
from shardwright.ir.given import mesh_of, shape_of, sharding_of
from shardwright.ir.mesh import with_target_mesh
from shardwright.ir.sharding import Sharding
from shardwright.ir.unreduced import NONE, Fate

SPLITS = ("flat", "nested")  # the two ways to cut an uneven extent; `ir/layout.py` defines them


@dataclass(frozen=True, init=False)
class Reshard:
    """The shape and the element type of a tensor, its source sharding and its target sharding.

    If an axis is unreduced only in the source, its partial sums are reduced. If an axis is
    unreduced only in the target, the device of coordinate 0 gets the value, and the others get the
    neutral element of the operator. `transposed`: whether the reshard moves cotangents back to the
    source of another reshard. Then all devices along an axis that is unreduced only in the target
    get a copy of the value. Along an axis that is unreduced only in the source, only the partial
    sum at coordinate 0 is read.
    """

    shape: tuple[int, ...]  # at most eight extents, each at least 1
    dtype: str
    source: Sharding
    target: Sharding
    source_split: str
    target_split: str
    # Not in `repr`, to which `plan_hash` adds it.
    transposed: bool = field(repr=False)
    # The axes that stay unreduced, are reduced, or become unreduced.
    fate: Fate = field(init=False, repr=False, compare=False)
    # Whether the source or the target was given as torch placements.
    placed: bool = field(init=False, repr=False, compare=False)

    @known_arguments
    def __init__(
        self,
        shape: object,
        dtype: object,
        source: object,
        target: object,
        source_split: str | None = None,
        target_split: str | None = None,
        transposed: bool = False,
        *,
        mesh: object = None,
        target_mesh: object = None,
    ) -> None:
        """Convert the arguments to canonical form.

        `shape`: extents, or a string such as `6x6`. `dtype`: a name, or a numpy, JAX or torch
        dtype. `source`, `target`: a Sharding, a NamedSharding, a PartitionSpec, placements, or a
        string. `mesh`, `target_mesh`: the meshes of shardings that do not have one; without
        `target_mesh`, the target is on the mesh of the source. `source_split`, `target_split`:
        "nested" or "flat"; the default is nested for torch placements that flat would split
        differently, else flat. Raises InputError for any other argument.
        """
        extents = shape_of(shape)
        own = None if mesh is None else mesh_of(mesh, "mesh")
        before = sharding_of(source, own, extents, "source", only=True)
        other = mesh_of(target_mesh, "target_mesh") if target_mesh is not None else None
        there = other or own or before.sharding.mesh
        try:
            after = sharding_of(target, there, extents, "target", only=other is not None)
        except InputError as error:
            raise error if other is not None else with_target_mesh(error) from None
        self._set(shape=extents, dtype=dtype_of(dtype), transposed=transposed)
        self._set(placed=before.placed or after.placed)
        self._set(source=_of_rank(before.sharding, len(extents), "source"))
        self._set(target=_of_rank(after.sharding, len(extents), "target"))
        self._set(source_split=_split(source_split, before.split, "source_split"))
        self._set(target_split=_split(target_split, after.split, "target_split"))
        _give_devices(self)
        unreduced = self.source.unreduced or self.target.unreduced
        self._set(fate=Fate.of(self.source, self.target) if unreduced else NONE)
        _check_sum(self)
        _check_bytes(self)

    def _set(self, **fields: object) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        """The number of bytes per element."""
        return itemsize(self.dtype)

    @property
    def adds(self) -> bool:
        """Whether partial sums are reduced: some axes are unreduced only in the source."""
        return bool(self.fate.reduced) and not self.transposed

    @property
    def places(self) -> bool:
        """Whether values become partial sums, because some axes are unreduced only in the target.
        One partial sum is the value, and the others are neutral elements."""
        return bool(self.fate.new) and not self.transposed

    @property
    def reads_one(self) -> bool:
        """Whether only partial sums at coordinate 0 of some axes are read. This is the transpose of
        `places`."""
        return bool(self.fate.reduced) and self.transposed

    @property
    def extremum(self) -> str:
        """The operator of the partial results that are reduced or produced, if it is `max` or
        `min`; else "".

        Such a reshard has no derivative, because a maximum is not differentiable where partial
        results are equal, and because the neutral element is infinite.
        """
        operators = (self.source.operator,) * self.adds + (self.target.operator,) * self.places
        return next((each for each in operators if each != "sum"), "")

    @property
    def moving(self) -> Reshard:
        """The reshard to the target without its new unreduced axes. Devices along these axes are
        replicas until a local step makes the axes unreduced."""
        target = self.target
        if not self.fate.new:
            return self
        kept = Sharding(
            target.mesh, target.dims, target.replicated, self.fate.kept, self.source.operator
        )
        return replace(self, target=kept)

    @property
    def nbytes(self) -> int:
        """The number of bytes of the whole tensor."""
        return math.prod(self.shape) * self.itemsize


def _of_rank(sharding: Sharding, rank: int, argument: str) -> Sharding:
    try:
        return sharding.for_rank(rank)
    except InputError as error:
        raise error.named(argument) from None


def _give_devices(reshard: Reshard) -> None:
    """If a side is on the empty mesh, replicate it over the mesh of the other side. Raise
    InputError if both meshes are empty."""
    sides = (("source", reshard.source, reshard.target), ("target", reshard.target, reshard.source))
    for side, own, other in sides:
        if own.mesh.is_empty and other.mesh.is_empty:
            raise InputError(
                "one side must have a mesh with devices; the empty mesh has none",
                argument=side,
                got=f"{own.mesh} on both sides",
                expected="a mesh of devices on either side, for example <[], device_ids=[0]>",
            )
        if own.mesh.is_empty:
            object.__setattr__(reshard, side, Sharding(other.mesh, own.dims))


def _check_sum(reshard: Reshard) -> None:
    """Raise InputError if partial sums of booleans would be added or made."""
    adds = reshard.adds and reshard.source.operator == "sum"
    places = reshard.places and reshard.target.operator == "sum"
    if reshard.dtype == "bool" and (adds or places):
        raise InputError(
            "the dtype of partial sums must support addition, which booleans do not",
            argument="dtype",
            got="bool",
            expected="an integer or a floating dtype, such as int8; or unreduced=max{…}",
        )


def _split(given: str | None, implied: str | None, argument: str) -> str:
    """Return the requested split, or else the split that the sharding implies. Raise InputError
    for an unknown split, and for one that contradicts placements."""
    if given is None:
        return implied or "flat"
    if given not in SPLITS:
        shown = given if isinstance(given, str) and given else repr(given)
        raise unknown("unknown split", shown, SPLITS, argument)
    if implied == "nested" and given == "flat":
        raise InputError(
            "split 'flat' contradicts these placements: torch splits by one mesh axis after "
            "another, which gives different shards here",
            argument=argument,
            got=given,
            expected="nested, or a Sharding in place of placements: sw.from_torch(…)",
        )
    return given


def _check_bytes(reshard: Reshard) -> None:
    """Raise InputError if the bytes that a reshard could move do not fit a 64-bit integer."""
    receivers = reshard.target.mesh.size
    if reshard.nbytes * receivers < 2**63:
        return
    raise InputError(
        "one copy of the tensor per target device must take fewer than 2**63 bytes in all",
        argument="shape",
        got=f"{reshard.nbytes} bytes on {receivers} device{'s' * (receivers != 1)}",
        expected=f"a tensor of at most {(2**63 - 1) // receivers} bytes",
        where=("shape",),
    )
