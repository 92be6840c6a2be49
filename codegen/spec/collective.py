"""Describe collectives by name, from a [[collective]] table."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shardwright.codegen.spec.description import FIELDS, Description, describe
from shardwright.codegen.spec.description import REQUIRED as REQUIRED_BY_RESHARDS
from shardwright.codegen.spec.description import SHARED as SHARED_BY_RESHARDS
from shardwright.codegen.spec.toml_tables import check_keys
from shardwright.ir import collectives
from shardwright.ir.errors import InputError, unknown
from shardwright.ir.given import sharding_of
from shardwright.ir.reshard import Reshard
from shardwright.ir.text.parse import parse_mesh, parse_shape

KINDS: dict[str, tuple[Callable[..., Reshard], tuple[str, ...]]] = {
    "all_gather": (collectives.all_gather, ("dim", "tiled")),
    "reduce_scatter": (collectives.reduce_scatter, ("dim", "tiled")),
    "all_reduce": (collectives.all_reduce, ()),
    "all_to_all": (collectives.all_to_all, ("dim", "tiled")),
    "slice": (collectives.slice, ("dim",)),
    "permute": (collectives.permute, ("pairs",)),
}
"""For each kind, the function that makes its reshard, and the keys that only some kinds have."""

OWN = ("kind", "axes", "dim", "tiled", "pairs")
DERIVED = ("target", "target_mesh", "target_split")
"""The keys of a reshard that the kind of a collective determines."""

SHARED = tuple(key for key in SHARED_BY_RESHARDS if key not in DERIVED)
"""The keys of a collective that can be set for several tables."""

KEYS = tuple(key for key in FIELDS if key not in DERIVED) + OWN
REQUIRED = {
    "name": '"gathered"',
    "kind": '"all_gather"',
    **{key: example for key, example in REQUIRED_BY_RESHARDS.items() if key not in DERIVED},
    "axes": '["x"]',
}
"""The keys that a [[collective]] table must have, each with an example."""
NEEDED = {"all_to_all": {"dim": "0"}, "permute": {"pairs": "[[0, 1], [1, 0]]"}}
"""The additional required keys of each kind, each with an example."""


def describe_collective(given: Mapping[str, object]) -> Description:
    """Return the description of the reshard that a collective performs.

    `given` has the keys of a [[collective]] table, including keys that reshards share, such as
    `backends`. Raises InputError with the key as `argument`; the caller adds its location.
    """
    kind = given.get("kind")
    if kind is not None and str(kind) not in KINDS:
        raise unknown("no such collective", str(kind), KINDS, "kind")
    known = {key: value for key, value in given.items() if key not in DERIVED}
    check_keys(known, KEYS, {**REQUIRED, **NEEDED.get(str(kind), {})})
    make, takes = KINDS[str(kind)]
    for key in (*DERIVED, *OWN[2:]):
        if key in given and key not in takes:
            raise InputError(
                f"{kind} does not take this key",
                argument=key,
                got=given[key],
                expected="no " + key,
            )
    _check(given)
    made = make(*_sides(given), **{key: given[key] for key in takes if key in given})
    rest = {key: value for key, value in given.items() if key not in OWN}
    said = Description.of(made, str(given["name"]))
    sides = {"mesh": said.mesh, "shape": list(made.shape), "source": said.source}
    other = {} if said.target_mesh is None else {"target_mesh": said.target_mesh}
    return describe({**rest, **sides, **other, "target": said.target})


def _check(given: Mapping[str, object]) -> None:
    tiled, dim, pairs = (given.get(key) for key in ("tiled", "dim", "pairs"))
    if tiled is not None and not isinstance(tiled, bool):
        raise InputError(
            "tiled must be true or false", argument="tiled", got=tiled, expected="true or false"
        )
    if dim is not None and type(dim) is not int:
        raise InputError("dim must be an integer", argument="dim", got=dim, expected="0, 1, 2, …")
    if pairs is not None and not _are_pairs(pairs):
        raise InputError(
            "pairs must be a list of pairs of coordinates",
            argument="pairs",
            got=pairs,
            expected="[[0, 1], [1, 0]]",
        )


def _are_pairs(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(pair, list) and list(map(type, pair)) == [int, int] for pair in value
    )


def _sides(given: Mapping[str, object]) -> tuple[object, ...]:
    """Return shape, dtype, source sharding and axes: the first arguments of all `KINDS`."""
    for key in ("mesh", "dtype", "source"):
        if not isinstance(given[key], str):
            raise InputError(
                f"{key} must be a string",
                argument=key,
                got=given[key],
                expected="a string in quotes",
            )
    shape, axes = given["shape"], given["axes"]
    extents = parse_shape(shape, "shape") if isinstance(shape, str) else shape
    if not isinstance(extents, list | tuple) or not all(type(each) is int for each in extents):
        raise InputError(
            "a shape must be a list of integers or a string",
            argument="shape",
            got=shape,
            expected="[6, 6] or '6x6'",
        )
    if not isinstance(axes, list) or not all(isinstance(axis, str) for axis in axes):
        raise InputError(
            "axes must be a list of names", argument="axes", got=axes, expected='["x"]'
        )
    mesh = parse_mesh(str(given["mesh"]), "mesh")
    source = sharding_of(str(given["source"]), mesh, tuple(extents), "source", only=True).sharding
    return tuple(extents), given["dtype"], source, tuple(axes)
