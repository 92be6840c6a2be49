"""Trees of arguments and results as Python text: dicts, lists, tuples and records of leaves."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from shardwright.codegen.backends.jax_spmd.records import Record
from shardwright.codegen.emit.python_text import INDENT, WIDTH

ENDS: dict[type, tuple[str, str]] = {list: ("[", "]"), tuple: ("(", ")"), dict: ("{", "}")}
Path = tuple[str, ...]
"""An expression and what follows it: `p`, `["w1"]`, `[0]`, `.step`."""


def tree_lines(tree: Any, prefix: str = "", suffix: str = "", indent: int = 0) -> list[str]:
    """Return a tree whose leaves are texts, on one line where it fits, else an item a line."""
    line = f"{prefix}{flat(tree)}{suffix}"
    if len(line) + indent * len(INDENT) <= WIDTH or not _is_node(tree):
        return [line]
    start, end = _ends(tree)
    out = [f"{prefix}{start}"]
    shown = list(_items(tree))
    if _is_one_often(tree):
        shown, suffix = shown[:1], f" * {len(tree)}{suffix}"
    for name, item in shown:
        out += [INDENT + inner for inner in tree_lines(item, name, ",", indent + 1)]
    return [*out, f"{end}{suffix}"]


def _is_one_often(tree: Any) -> bool:
    """Return whether a list or tuple is one tree several times."""
    several = isinstance(tree, list | tuple) and len(tree) > 2 and _is_node(tree[0])
    return several and all(item == tree[0] for item in tree)


def _items(tree: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(tree, dict):
        yield from ((f"{_key(key)}: ", item) for key, item in tree.items())
    elif isinstance(tree, Record):
        yield from tree.items
    else:
        yield from (("", item) for item in tree)


def flat(tree: Any) -> str:
    """Return a tree whose leaves are texts on one line."""
    if type(tree) not in (*ENDS, Record):
        return str(tree)
    start, end = _ends(tree)
    inside = ", ".join(name + flat(item) for name, item in _items(tree))
    comma = "," if isinstance(tree, tuple) and len(tree) == 1 else ""
    return f"{start}{inside}{comma}{end}"


def _is_node(tree: Any) -> bool:
    """Return whether something is in a tree."""
    return isinstance(tree, Record) or (type(tree) in ENDS and bool(tree))


def _ends(tree: Any) -> tuple[str, str]:
    return (tree.start, tree.end) if isinstance(tree, Record) else ENDS[type(tree)]


def _key(key: object) -> str:
    return f'"{key}"' if isinstance(key, str) else repr(key)


def paths(tree: Any, base: Path) -> Iterator[tuple[str, Path]]:
    """Yield each leaf with its place in a tree whose expression is `base`."""
    if isinstance(tree, str):
        yield tree, base
    elif isinstance(tree, dict):
        for key, item in tree.items():
            yield from paths(item, (*base, f"[{_key(key)}]"))
    elif isinstance(tree, Record):
        for way, (_, item) in zip(tree.ways, tree.items, strict=True):
            yield from paths(item, (*base, way)) if way else ()
    elif tree is not None:
        for place, item in enumerate(tree):
            yield from paths(item, (*base, f"[{place}]"))


def tree_of(places: Sequence[Path], leaves: Sequence[str]) -> dict[Any, Any]:
    """Return dicts that have leaves in these places."""
    tree: dict[Any, Any] = {}
    for place, leaf in zip(places, leaves, strict=True):
        *outer, last = (ast.literal_eval(part)[0] for part in place)
        inner = tree
        for key in outer:
            inner = inner.setdefault(key, {})
        inner[last] = leaf
    return tree
