"""Read shardings given as trees. Each is a prefix of the tree of arguments or results, as in
`jax.jit`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from shardwright.codegen.trace.meshes import ProgramMeshes
from shardwright.ir.errors import InputError, in_a_line, unknown
from shardwright.ir.jax_specs import Spec
from shardwright.ir.sharding import Sharding

LONGEST = 200
"""The most characters of a tree in a message."""
LEAVES = (Sharding, NamedSharding, PartitionSpec, str)


def leaves_of(
    given: Any, tree: Any, shapes: Sequence[tuple[int, ...]], meshes: ProgramMeshes, argument: str
) -> tuple[Sharding | None, ...]:
    """Return the sharding of each leaf of `tree`, None if none is stated for it.

    Raises InputError, which names `argument` and the leaf's path, for a prefix that does not fit, a
    sharding of another rank, or axes that the mesh lacks.
    """
    full = jax.tree.unflatten(tree, [0] * tree.num_leaves)
    _check_keys(given, full, argument)
    marked = jax.tree.map(lambda x: _FREE if x is None else x, given, is_leaf=_is_leaf)
    try:
        spread = jax.tree.broadcast(marked, full, is_leaf=_is_leaf)
    except ValueError as error:
        raise InputError(
            "shardings must be a prefix of the tree of values",
            argument=argument,
            got=in_a_line(given),
            expected=f"a prefix of {_tree_text(tree)} ({_difference(str(error))})",
        ) from None
    paths = jax.tree_util.tree_flatten_with_path(spread, is_leaf=_is_given)[0]
    return tuple(
        _leaf(leaf, shape, meshes, argument + jax.tree_util.keystr(path))
        for (path, leaf), shape in zip(paths, shapes, strict=True)
    )


def _check_keys(given: Any, full: Any, argument: str) -> None:
    """Raise InputError for the first key that a dict of shardings has and the values lack, or the
    reverse."""
    if isinstance(given, dict) and isinstance(full, dict):
        known = [*map(str, full)]
        for key in given:
            if key not in full:
                raise unknown("unknown key", str(key), known, argument)
        for key in full:
            if key not in given:
                raise InputError(
                    f"the key {key} is missing",
                    argument=argument,
                    got=", ".join(map(str, given)) or "no keys",
                    expected=f"all of {', '.join(known)}, each with a sharding, or None to leave "
                    "it open",
                )
            _check_keys(given[key], full[key], f"{argument}[{key!r}]")
    elif isinstance(given, list | tuple) and isinstance(full, list | tuple):
        for place, nodes in enumerate(zip(given, full, strict=False)):
            _check_keys(*nodes, f"{argument}[{place}]")


def _difference(said: str) -> str:
    """Return where two trees differ and which keys differ, shortened from JAX's message."""
    path = re.search(r"prefix_tree(\S+)$", said, re.MULTILINE)
    keys = re.search(r"on key sets is\n\s*(.+)", said)
    names = re.findall(r"^\s*[-+] \((.*)\)$", said, re.MULTILINE)
    where = said.splitlines()[0] + (f" {path[1]}" if path else "")
    if keys:
        return f"{where}: {keys[1].strip()}"
    if len(names) == 2:
        given, wanted = (re.findall(r"'(\w+)'", each) for each in names)
        return f"{where}: {', '.join(given)} for {', '.join(wanted)}"
    return where


_FREE = object()  # stands for a None leaf, because JAX does not treat None as a leaf


def _is_leaf(x: Any) -> bool:
    return x is None or _is_given(x)


def _is_given(x: Any) -> bool:
    return isinstance(x, LEAVES)


def _tree_text(tree: Any) -> str:
    text = str(tree).removeprefix("PyTreeDef(").removesuffix(")")
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _leaf(
    given: Any, shape: tuple[int, ...], meshes: ProgramMeshes, argument: str
) -> Sharding | None:
    try:
        sharding = _read(given, len(shape), meshes)
        return None if sharding is None else sharding.for_rank(len(shape))
    except InputError as error:
        raise error.named(argument) from None


def _read(given: Any, rank: int, meshes: ProgramMeshes) -> Sharding | None:
    if given is _FREE:
        return None
    match given:
        case str() | Sharding():
            return meshes.read(given, rank)
        case NamedSharding():
            return meshes.of_jax(given, rank)
        case PartitionSpec():
            return Spec.of(given).sharding(meshes.first, rank)
    raise InputError(
        "a leaf of shardings must be a Sharding, a NamedSharding, a PartitionSpec, a text or None",
        got=in_a_line(given),
        expected='P("x", None), \'[{"x"}, {}]\', …',
    )
