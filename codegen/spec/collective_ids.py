"""Collective ids: the numbers by which TPU kernels identify the barrier at which they wait.

Kernels of one program must not share an id. A bundle has four: two for its kernels and two for the
kernels that move cotangents back. A group has eight: one per element width, and as many for
cotangents. By default the first id is a hash of the operation, so it does not change when other
operations are added or removed; a config resolves collisions between its operations.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace

from shardwright.codegen import registry
from shardwright.codegen.spec.description import BUNDLE_IDS, INTERPRETERS_IDS, Description, moved_by
from shardwright.codegen.spec.group import GROUP_IDS, Group
from shardwright.codegen.spec.matmul import MatmulDescription
from shardwright.codegen.spec.relayout import RelayoutDescription
from shardwright.ir.errors import InputError
from shardwright.ir.reshard import Reshard


def bundle_id(description: Description) -> int:
    """Return the first collective id of a bundle; the others follow."""
    said = description.collective_id
    return _bundle_id(description) if said is None else said


def matmul_id(description: MatmulDescription) -> int:
    """Return the collective id of a matmul's kernel; the ids for its cotangents follow."""
    said = description.collective_id
    return _matmul_id(description) if said is None else said


def _matmul_id(description: MatmulDescription) -> int:
    matmul = description.matmul()
    chosen_by = description.topology, description.loop
    sides = (matmul.lhs.shape, str(matmul.lhs.sharding), matmul.rhs.shape, str(matmul.rhs.sharding))
    types = matmul.dtype, matmul.out_dtype
    return _hashed(BUNDLE_IDS, (str(matmul.mesh), *sides, str(matmul.out), *types, *chosen_by))


def program_id(name: str, mesh: str) -> int:
    """Return the collective id of a program's first kernel; the others follow."""
    return _hashed(BUNDLE_IDS, ("program", name, mesh))


def relayout_id(description: RelayoutDescription) -> int:
    moved = description.mesh, description.target_mesh, description.dtype, description.tensors
    sides = description.source, description.target, *["gradient"] * description.gradient
    return _hashed(BUNDLE_IDS, ("relayout", *moved, *sides))


def group_id(group: Group, reshards: Mapping[str, Reshard]) -> int:
    """Return the first collective id of a group, from the reshards of its members."""
    if group.collective_id is not None:
        return group.collective_id
    return _group_id(group, {name: moved_by(reshards[name]) for name in group.members})


def allocated(
    reshards: Mapping[str, Description],
    groups: Iterable[Group],
    folders: Mapping[str, str],
    matmuls: Iterable[MatmulDescription] = (),
    relayouts: Iterable[RelayoutDescription] = (),
) -> tuple[dict[str, Description], tuple[Group, ...], tuple[MatmulDescription, ...]]:
    """Resolve collisions of collective ids between the operations of a config, and return the
    operations.

    If two operations have the same id, the later one gets a new id; relayouts always keep their
    ids. `folders` maps the name of an operation that shares another's bundle to the bundle's
    folder. Raises InputError, argument "collective_id", for two operations that state the same id;
    `where` names the second.
    """
    bundles = {
        each.name: (each.collective_id, _bundle_id(each))
        for each in reshards.values()
        if each.name not in folders and _meet(each.backends)
    }
    products = {
        each.name: (each.collective_id, _matmul_id(each))
        for each in matmuls
        if each.name not in folders and _meet(each.backends)
    }
    kept = {relayout_id(each): each.name for each in relayouts if _meet(each.backends)}
    found = _distinct(BUNDLE_IDS, {**products, **bundles}, kept)
    named = {
        name: replace(each, collective_id=found.get(folders.get(name, name), each.collective_id))
        for name, each in reshards.items()
    }
    multiplied = tuple(
        replace(
            each, collective_id=found.get(folders.get(each.name, each.name), each.collective_id)
        )
        for each in matmuls
    )
    texts = {name: each.moved for name, each in reshards.items()}
    given = {each.name: each for each in groups}
    wanted = {
        name: (group.collective_id, _group_id(group, texts))
        for name, group in given.items()
        if any(_meet(reshards[member].backends) for member in group.members)
    }
    found = _distinct(GROUP_IDS, wanted)
    listed = (
        replace(each, collective_id=found.get(each.name, each.collective_id))
        for each in given.values()
    )
    return named, tuple(listed), multiplied


def _distinct(
    among: range,
    wanted: Mapping[str, tuple[int | None, int]],
    kept: Mapping[int, str] | None = None,
) -> dict[str, int]:
    """Return, by name, the ids that descriptions must state: the ids already stated (first in each
    pair of `wanted`), and a free id for each name whose hashed id (second) is taken. `kept`: the
    ids that cannot change, each with its name.
    """
    found: dict[str, int] = {}
    taken: dict[int, str] = dict(kept or {})
    for name, (said, _) in wanted.items():
        if said is not None:
            if said in taken:
                raise _twice(name, taken[said], said)
            taken[said], found[name] = name, said
    for name, (said, own) in wanted.items():
        if said is not None:
            continue
        if len(taken) == len(among):
            raise InputError(
                "a config must not have more operations than there are collective ids",
                argument="collective_id",
                expected=f"at most {len(among)} operations",
                where=(name,),
            )
        place = among.index(own)
        while among[place] in taken or among[place] in INTERPRETERS_IDS:
            place = (place + 1) % len(among)
        taken[among[place]] = name
        if among[place] != own:
            found[name] = among[place]
    return found


def _twice(name: str, other: str, said: int) -> InputError:
    return InputError(
        "two operations must not have the same collective id",
        argument="collective_id",
        got=f"{said}, already taken by {other}",
        expected="a different number for each",
        where=(name,),
    )


def _meet(backends: Iterable[str]) -> bool:
    """Return whether kernels of these backends use collective ids, so that equal ids would
    collide."""
    return any(name in registry.NAMES and registry.contract(name).collective for name in backends)


def _bundle_id(description: Description) -> int:
    chosen_by = description.strategy, description.topology, description.memory_limit
    return _hashed(BUNDLE_IDS, (description.moved, chosen_by))


def _group_id(group: Group, moved: Mapping[str, tuple[object, ...]]) -> int:
    return _hashed(GROUP_IDS, (group.name, [(name, moved[name]) for name in group.members]))


def _hashed(among: range, what: object) -> int:
    """Return an id from `among`, chosen by a hash of `what`, that JAX's interpreter does not
    use."""
    digest = hashlib.sha256(repr(what).encode()).digest()
    found = among[int.from_bytes(digest[:8], "big") % len(among)]
    return found + len(INTERPRETERS_IDS) * (found in INTERPRETERS_IDS)
