"""Read the values that users give for a mesh or a sharding.

A mesh is a `Mesh`, its text, a dict of its axes, a JAX mesh or a torch DeviceMesh. A sharding is a
`Sharding`, a NamedSharding, a PartitionSpec, a DTensor or its placements, the text of any of these,
or text in HLO's notation or in index notation, `A[I_X, J]`. Neither JAX nor torch is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from shardwright.ir.errors import InputError, in_a_line
from shardwright.ir.foreign import (
    ABSTRACT_MESH,
    DEVICE_MESH,
    DTENSOR,
    JAX_ARRAY,
    JAX_MESH,
    JAX_SHARDING,
    NAMED_SHARDING,
    PARTITION_SPEC,
    PLACEMENT,
    SINGLE_DEVICE,
    is_a,
)
from shardwright.ir.jax_specs import Spec, from_named_sharding, mesh_of_jax
from shardwright.ir.mesh import Mesh
from shardwright.ir.sharding import Sharding, check_shape
from shardwright.ir.text.framework_text import PLACEMENTS, SPEC, parse_placements, parse_spec
from shardwright.ir.text.index_notation import INDEXED, parse_indexed
from shardwright.ir.text.parse import HLO, parse_mesh, parse_shape, parse_sharding
from shardwright.ir.torch_placements import Placed, Placing, mesh_of_torch, placed_of, placing


class Given(NamedTuple):
    """A sharding that was read from a user's value."""

    sharding: Sharding
    split: str | None = None  # "flat" or "nested" if the value implies it
    placed: bool = False  # whether the value was torch placements


def shape_of(given: object) -> tuple[int, ...]:
    """Parse a shape given as extents or as a string such as `6x6`. Raise InputError for anything
    else."""
    return parse_shape(given, "shape") if isinstance(given, str) else check_shape(given)


def mesh_of(given: object, argument: str | None = None) -> Mesh:
    """Read a mesh given as a Mesh, a string, a dict of axes, a JAX mesh or a DeviceMesh. Raise
    InputError, naming `argument`, for anything else."""
    try:
        return _mesh_of(given, argument)
    except InputError as error:
        raise error.named(argument) from None


def _mesh_of(given: Any, argument: str | None) -> Mesh:
    if isinstance(given, Mesh):
        return given
    if isinstance(given, str):
        return parse_mesh(given, argument)
    if isinstance(given, Mapping):
        return Mesh(given)
    if is_a(given, JAX_MESH, ABSTRACT_MESH):
        return mesh_of_jax(given)
    if is_a(given, DEVICE_MESH):
        return mesh_of_torch(given)
    raise InputError(
        "a mesh must be a Mesh, its text, a dict of axes, a JAX mesh or a DeviceMesh",
        got=in_a_line(given),
        expected='sw.Mesh({"x": 2, "y": 3}) or \'x=2,y=3\'',
    )


def sharding_on(given: object, mesh: Mesh, rank: int | None = None) -> Sharding:
    """Read a sharding on a mesh, given in any accepted form.

    `rank`: the rank of the tensor, for forms that do not state it. Raises InputError for anything
    else, and for a sharding on a different mesh.
    """
    return _GivenReader(mesh, True, rank, None, None).read(given).sharding


def sharding_of(
    given: object, mesh: Mesh | None, shape: tuple[int, ...], argument: str, *, only: bool
) -> Given:
    """Read the sharding of a tensor, given in any accepted form.

    `mesh`: the mesh for forms without one. `only`: whether the sharding's own mesh, if any, must
    equal `mesh`. Raises InputError, naming `argument`, for anything else.
    """
    try:
        return _GivenReader(mesh, only, len(shape), shape, argument).read(given)
    except InputError as error:
        raise error.named(argument) from None


class _GivenReader(NamedTuple):
    mesh: Mesh | None
    only: bool
    rank: int | None
    shape: tuple[int, ...] | None
    argument: str | None

    def read(self, given: Any) -> Given:
        if isinstance(given, str):
            return self._text(given)
        if isinstance(given, Sharding):
            return Given(self._own(given))
        if is_a(given, NAMED_SHARDING):
            return Given(self._own(self._named(given)))
        if is_a(given, SINGLE_DEVICE):
            (device,) = given.device_set
            return Given(self._own(Sharding(Mesh({}, [device.id]), ())))
        if is_a(given, PARTITION_SPEC):
            rank = len(given) if self.rank is None else self.rank
            return Given(Spec.of(given).sharding(self._needed("a PartitionSpec", given), rank))
        if is_a(given, DTENSOR):
            return self._dtensor(given)
        if isinstance(given, list | tuple) and given:
            if is_a(given[0], PLACEMENT):
                return self._placed(tuple(map(Placed.of, given)), given)
            if all(isinstance(each, Placed) for each in given):
                return self._placed(tuple(given), given)
        raise self._wrong(given)

    def _text(self, text: str) -> Given:
        if SPEC.match(text):
            mesh = self._needed("a PartitionSpec", text)
            return Given(parse_spec(text, mesh, self.rank, self.argument))
        if PLACEMENTS.match(text):
            return self._placed(parse_placements(text, self.argument), text)
        if HLO.match(text):
            self._needed("a sharding in HLO notation", text)
        if INDEXED.match(text):
            mesh = self._needed("a sharding in index notation", text)
            return Given(parse_indexed(text, mesh, self.argument))
        meshes = self.mesh if self.only or self.mesh is None else (self.mesh,)
        return Given(parse_sharding(text, meshes, self.argument, self.rank))

    def _placed(self, placed: tuple[Placed, ...], given: object) -> Given:
        mesh = self._needed("a sequence of placements", given)
        if self.rank is None:
            raise InputError(
                "placements alone do not give the rank of the tensor",
                got=in_a_line(given),
                expected="mesh.sharding(placements, rank)",
            )
        try:
            found: Placing = placing(mesh, placed, self.rank)
            split = None if self.shape is None else found.split(self.shape)
            return Given(found.sharding, split, placed=True)
        except InputError as error:
            text = given if isinstance(given, str) else None
            raise error if text is None else error.within(text, (0, len(text))) from None

    def _dtensor(self, x: Any) -> Given:
        found = placing(mesh_of_torch(x.device_mesh), placed_of(x), x.ndim)
        return Given(self._own(found.sharding), found.split(tuple(x.shape)), placed=True)

    def _named(self, named: Any) -> Sharding:
        """Return the sharding of a NamedSharding. If its mesh is abstract and has the same axes as
        the given mesh, the sharding is on the given mesh."""
        rank = len(named.spec) if self.rank is None else self.rank
        found = from_named_sharding(named, rank)
        abstract = is_a(named.mesh, ABSTRACT_MESH)
        if abstract and self.mesh is not None and self.mesh.axes == found.mesh.axes:
            return Sharding(self.mesh, found.dims, unreduced=found.unreduced)
        return found

    def _own(self, sharding: Sharding) -> Sharding:
        if self.only and self.mesh is not None and sharding.mesh != self.mesh:
            raise InputError(
                "the sharding must be on the given mesh",
                got=sharding.mesh,
                expected=str(self.mesh),
            )
        return sharding

    def _needed(self, what: str, given: object) -> Mesh:
        if self.mesh is None:
            raise InputError(
                f"{what} needs a mesh",
                got=given if isinstance(given, str) else in_a_line(given),
                expected="mesh='x=2,y=3', a JAX mesh or a DeviceMesh",
            )
        return self.mesh

    def _wrong(self, given: Any) -> InputError:
        expected = """a text such as '[{"x"}, {}]', P('x', None), a NamedSharding or placements"""
        if is_a(given, JAX_ARRAY):
            expected = "its sharding: x.sharding"
        elif is_a(given, PLACEMENT):
            expected = f"one placement for each dimension of the mesh: [{given!r}]"
        elif is_a(given, JAX_SHARDING):
            expected = "a NamedSharding: other JAX shardings have no named axes"
        elif isinstance(given, tuple | list) and all(_is_entry(entry) for entry in given):
            expected = f"P({', '.join(map(repr, given))})"
        return InputError(
            "a sharding must be a Sharding, a NamedSharding, a PartitionSpec, placements or a text",
            got=in_a_line(given),
            expected=expected,
        )


def _is_entry(given: object) -> bool:
    return given is None or isinstance(given, str | tuple)


def read_text(key: str, value: object) -> str:
    """Return `value` if it is a string. Raise InputError for any other type."""
    if isinstance(value, str):
        return value
    raise InputError(
        f"{key} must be a string", argument=key, got=value, expected="a string in quotes"
    )
