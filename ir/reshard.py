"""A reshard: one tensor, how it is sharded, and how it shall be."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from shardwright.ir.dtypes import dtype_of, itemsize
from shardwright.ir.errors import InputError, unknown
from shardwright.ir.given import mesh_of, shape_of, sharding_of
from shardwright.ir.sharding import Sharding
from shardwright.ir.unreduced import NONE, Fate

SPLITS = ("flat", "nested")  # how extents that do not divide are cut; `layout` defines both


@dataclass(frozen=True, init=False)
class Reshard:
    """A tensor's shape and element type, its source and its target sharding.

    Terms along axes that are unreduced in the source alone are reduced. Along axes that are
    unreduced in the target alone, the device of coordinate 0 gets the value, and every other device
    the operator's neutral element. `transposed`: the reshard moves cotangents back from where
    another one put its results. Then each term of the target is a copy of the source's term at the
    same coordinates, and along axes that are unreduced in the source alone only the terms of
    coordinate 0 are read.
    """

    shape: tuple[int, ...]  # extents of at least 1, at most eight
    dtype: str
    source: Sharding
    target: Sharding
    source_split: str
    target_split: str
    # Not in `repr`, of which modules have hashes; no module of those backends has terms.
    transposed: bool = field(repr=False)
    fate: Fate = field(init=False, repr=False, compare=False)  # what becomes of unreduced axes
    placed: bool = field(init=False, repr=False, compare=False)  # whether placements describe it

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
        """Read the arguments and keep them in canonical form.

        `shape`: extents. `dtype`: a name, or a dtype of numpy, JAX or torch. `source`, `target`: a
        Sharding, a NamedSharding, a PartitionSpec, placements, or a text. `mesh` and `target_mesh`
        are for shardings that have no mesh of their own; the target's mesh is by default the
        source's. `source_split`, `target_split`: "nested" or "flat", by default nested for torch's
        placements where that makes a difference, else flat. Raises InputError for anything else.
        """
        extents = shape_of(shape)
        own = None if mesh is None else mesh_of(mesh, "mesh")
        before = sharding_of(source, own, extents, "source", only=True)
        other = mesh_of(target_mesh, "target_mesh") if target_mesh is not None else None
        there = other or own or before.sharding.mesh
        after = sharding_of(target, there, extents, "target", only=other is not None)
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


def _split(given: str | None, implied: str | None, argument: str) -> str:
    """Return the split that is given, else the one that a sharding implies."""
    if given is None:
        return implied or "flat"
    if given not in SPLITS:
        shown = given if isinstance(given, str) and given else repr(given)
        raise unknown("the split must be known", shown, SPLITS, argument)
    if implied == "nested" and given == "flat":
        raise InputError(
            "placements are cut chunk by chunk, which here differs from equal parts",
            argument=argument,
            got=given,
            expected="nested, or a Sharding in place of placements: sw.from_torch(…)",
        )
    return given


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
