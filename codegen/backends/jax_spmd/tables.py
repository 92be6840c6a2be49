"""The constants of a module for trees of types and of shardings. Equal parts are written once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shardwright.codegen.backends.jax_spmd.trees import flat, is_one_often, tree_lines


def tables(trees: Mapping[str, Any], parameters: Sequence[str], kind: str) -> Iterator[str]:
    """Yield the lines that assign named trees. The first tree has one item per parameter.

    A repeated part, such as a model's layer, or weights and their moments, becomes a constant named
    after its first occurrence.
    """
    nodes = _Nodes(kind)
    for place, tree in enumerate(trees.values()):
        for number, item in enumerate(tree) if place == 0 else [(0, tree)]:
            nodes.count(item, parameters[number] if place == 0 else "results")
    constants = nodes.constants()
    for text, constant in constants.items():
        others = {other: name for other, name in constants.items() if other != text}
        yield from tree_lines(_replaced(nodes.nodes[text], others), f"{constant} = ")
    for name, tree in trees.items():
        yield from tree_lines(_replaced(tree, constants), f"{name} = ")


class _Nodes:
    """The nodes of trees that take several lines, by their text: the node, its number of
    occurrences, and a word for the name of its constant."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.counts: dict[str, int] = {}
        self.nodes: dict[str, Any] = {}
        self.words: dict[str, str] = {}

    def count(self, tree: Any, word: str) -> None:
        """Count the nodes of a tree. The nodes inside a repeated node are counted once."""
        if not isinstance(tree, dict | list | tuple) or len(tree_lines(tree)) == 1:
            return
        text = flat(tree)
        self.counts[text] = self.counts.get(text, 0) + 1
        if self.counts[text] > 1:
            return
        self.nodes[text], self.words[text] = tree, word
        items = list(tree.items()) if isinstance(tree, dict) else [(word, item) for item in tree]
        for key, item in items[:1] if is_one_often(tree) else items:
            self.count(item, key if isinstance(key, str) else word)

    def constants(self) -> dict[str, str]:
        names: dict[str, str] = {}
        for text in sorted((text for text, n in self.counts.items() if n > 1), key=len):
            word = re.sub(r"_?\d+$", "", self.words[text]) or self.words[text]
            base = f"{re.sub(r'[^A-Za-z0-9]+', '_', word).strip('_').upper()}_{self.kind}"
            base = base if base[0].isalpha() else f"OF_{base}"
            number = sum(name.startswith(base) for name in names.values())
            names[text] = f"{base}_{number + 1}" if number else base
        return names


def _replaced(tree: Any, constants: Mapping[str, str]) -> Any:
    if not isinstance(tree, dict | list | tuple):
        return tree
    known = constants.get(flat(tree))
    if known is not None:
        return known
    if isinstance(tree, dict):
        return {key: _replaced(item, constants) for key, item in tree.items()}
    return type(tree)(_replaced(item, constants) for item in tree)
