"""`sw.reshard` of a tree (dicts, lists and tuples) whose leaves are all arrays or all DTensors, in
one exchange."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from shardwright.ir.errors import InputError
from shardwright.ir.foreign import (
    DEVICE_MESH,
    DTENSOR,
    JAX_ARRAY,
    JAX_SHARDING,
    PARTITION_SPEC,
    PLACEMENT,
    is_a,
)
from shardwright.ir.rules import listed

_TREES = (("jax.tree_util", JAX_ARRAY), ("torch.utils._pytree", DTENSOR))
"""The modules that flatten trees, each with the type of its leaves."""

_KEYS = ("key", "idx", "name")
"""Attributes of path entries: the key of a dict, the index of a list, the name of a field."""


class Leaf(NamedTuple):
    """A leaf of a tree: its name (the keys from the root, joined by dots), its value and its
    shardings."""

    name: str
    value: Any
    target: Any
    source: Any


class Tree(NamedTuple):
    """A flattened tree: its leaves, their paths, the treedef `form` that rebuilds it, and the
    library `module` that flattened it."""

    leaves: list[Any]
    paths: list[tuple[Any, ...]]
    form: Any
    module: Any
    of_jax: bool


def tree_of(x: Any) -> Tree | None:
    """Return a tree with JAX arrays or DTensors below its root, or None for anything else."""
    for name, kind in _TREES:
        module = sys.modules.get(name)
        if module is not None:
            flat, form = module.tree_flatten_with_path(x)
            if any(is_a(leaf, kind) and path for path, leaf in flat):
                paths, leaves = zip(*flat, strict=True)
                return Tree([*leaves], [*paths], form, module, kind == JAX_ARRAY)
    return None


def leaves_of(tree: Tree, target: Any, source: Any) -> list[Leaf]:
    """Return the leaves of a tree with their targets and sources. Raises InputError for leaves
    without a target, and for targets without a leaf."""
    targets = _for_each(tree, target, "target")
    sources = [None] * len(targets) if source is None else _for_each(tree, source, "source")
    return list(map(Leaf, map(_name, tree.paths), tree.leaves, targets, sources))


def moved(
    leaves: list[Leaf],
    moves: Callable[[Leaf], bool],
    single: Callable[[Leaf], Any],
    exchanged: Callable[[list[Leaf]], list[Any]],
) -> list[Any]:
    """Return the resharded leaves, in order. If `moves` is true for two or more leaves, `exchanged`
    reshards these together; `single` reshards each other leaf."""
    together = [number for number, leaf in enumerate(leaves) if moves(leaf)]
    if len(together) < 2:
        together = []
    own = {*range(len(leaves))} - {*together}
    found = {number: alone(leaves[number], single) for number in sorted(own)}
    if together:
        found |= zip(together, exchanged([leaves[number] for number in together]), strict=True)
    return [found[number] for number in range(len(leaves))]


def alone(leaf: Leaf, move: Callable[[Leaf], Any]) -> Any:
    """Return `move(leaf)`. Add the leaf's name to an InputError."""
    try:
        return move(leaf)
    except InputError as error:
        raise error.named(f"{error.argument or 'x'}, {leaf.name}") from None


def _for_each(tree: Tree, given: Any, argument: str) -> list[Any]:
    flat, _ = tree.module.tree_flatten_with_path(given, is_leaf=_is_place)
    by_path = {tuple(path): leaf for path, leaf in flat}
    found, used, lacking = [], set(), []
    for path in tree.paths:
        above = (tuple(path[:count]) for count in range(len(path) + 1))
        at = next((each for each in above if each in by_path), None)
        found.append(None if at is None else by_path[at])
        used.add(at)
        lacking += [_name(path)] if at is None else []
    extra = [_name(path) for path in by_path if path not in used]
    if lacking or extra:
        raise InputError(
            f"there must be one {argument} for each leaf of x",
            argument=argument,
            got=f"no {argument} for {listed(lacking)}"
            if lacking
            else f"a {argument} for {listed(extra)}, which x lacks",
            expected=f"the same keys as x, or a single {argument} for all leaves",
        )
    return found


def _is_place(given: Any) -> bool:
    """Return whether `given` is the target of a single leaf, rather than a tree of targets."""
    if is_a(given, JAX_SHARDING, PARTITION_SPEC, PLACEMENT):
        return True
    if not isinstance(given, list | tuple) or not given:
        return False
    return is_a(given[0], DEVICE_MESH) or all(is_a(each, PLACEMENT) for each in given)


def _name(path: Any) -> str:
    return ".".join(
        str(next(said for each in _KEYS if (said := getattr(key, each, None)) is not None))
        for key in path
    )
