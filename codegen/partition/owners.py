"""What arguments and results belong to: the dict or list that they are in, as a layer."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any

Place = tuple[Hashable, ...]


def owners(tree_of: Callable[[tuple[Any, ...]], Any], count: int, side: str) -> list[Place]:
    """Return for each of this many leaves the place of the dict or list that it is in, in the tree
    of a side."""
    found = dict(_leaves(tree_of(tuple(range(count))), (side,)))
    return [found.get(leaf, ()) for leaf in range(count)]


def _leaves(tree: Any, place: Place) -> Iterator[tuple[int, Place]]:
    """Yield the leaves of a tree in a place, each with that of what it is in."""
    if isinstance(tree, int):
        yield tree, place[:-1]
    elif isinstance(tree, dict):
        for key, inner in tree.items():
            yield from _leaves(inner, (*place, key))
    elif isinstance(tree, list | tuple):
        for number, inner in enumerate(tree):
            yield from _leaves(inner, (*place, number))
    else:
        for name, inner in getattr(tree, "__dict__", {}).items():
            yield from _leaves(inner, (*place, name))
