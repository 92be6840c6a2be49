"""The owners of arguments and results: the dict or list that contains each, such as the parameters
of a layer."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any

Place = tuple[Hashable, ...]


def owners(tree_of: Callable[[tuple[Any, ...]], Any], count: int, side: str) -> list[Place]:
    """Return, for each of `count` leaves, the path of the dict or list that contains it. `tree_of`:
    a function that returns the tree with these leaves; `side`: the first key of the paths."""
    found = dict(_leaves(tree_of(tuple(range(count))), (side,)))
    return [found.get(leaf, ()) for leaf in range(count)]


def _leaves(tree: Any, place: Place) -> Iterator[tuple[int, Place]]:
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
