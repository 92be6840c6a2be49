"""Trees of arguments and results as Python text: dicts, lists and tuples of leaves."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from shardwright.codegen.emit.python_text import INDENT, WIDTH
from shardwright.ir.errors import InputError

ENDS: dict[type, tuple[str, str]] = {list: ("[", "]"), tuple: ("(", ")"), dict: ("{", "}")}
Path = tuple[str, ...]
"""An expression and the subscripts that follow it: `p`, `["w1"]`, `[0]`."""


def check_tree(tree: Any, argument: str) -> None:
    """Raise InputError for a tree that is not made of dicts, lists and tuples."""
    if isinstance(tree, str) or tree is None:
        return
    if type(tree) not in ENDS:
        raise InputError(
            "arguments and results of a program that is emitted must be trees that text can say",
            argument=argument,
            got=type(tree).__name__,
            expected="dicts with string or integer keys, lists, tuples, arrays; a NamedTuple as "
            "x._asdict(), a dataclass as vars(x), made again inside the function",
        )
    for inner in tree.values() if isinstance(tree, dict) else tree:
        check_tree(inner, argument)


def tree_lines(tree: Any, prefix: str = "", suffix: str = "", indent: int = 0) -> list[str]:
    """Return a tree whose leaves are texts, on one line where it fits, else an item a line."""
    line = f"{prefix}{flat(tree)}{suffix}"
    if len(line) + indent * len(INDENT) <= WIDTH or type(tree) not in ENDS or not tree:
        return [line]
    start, end = ENDS[type(tree)]
    out = [f"{prefix}{start}"]
    shown = list(_items(tree))
    if _is_one_often(tree):
        shown, suffix = shown[:1], f" * {len(tree)}{suffix}"
    for name, item in shown:
        out += [INDENT + inner for inner in tree_lines(item, name, ",", indent + 1)]
    return [*out, f"{end}{suffix}"]


def _is_one_often(tree: Any) -> bool:
    """Return whether a list or tuple is one tree several times."""
    several = isinstance(tree, list | tuple) and len(tree) > 2 and type(tree[0]) in ENDS
    return several and all(item == tree[0] for item in tree)


def _items(tree: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(tree, dict):
        yield from ((f"{_key(key)}: ", item) for key, item in tree.items())
    else:
        yield from (("", item) for item in tree)


def flat(tree: Any) -> str:
    """Return a tree whose leaves are texts on one line."""
    if type(tree) not in ENDS:
        return str(tree)
    start, end = ENDS[type(tree)]
    inside = ", ".join(name + flat(item) for name, item in _items(tree))
    comma = "," if isinstance(tree, tuple) and len(tree) == 1 else ""
    return f"{start}{inside}{comma}{end}"


def _key(key: object) -> str:
    return f'"{key}"' if isinstance(key, str) else repr(key)


def paths(tree: Any, base: Path) -> Iterator[tuple[str, Path]]:
    """Yield each leaf with its place in a tree whose expression is `base`."""
    if isinstance(tree, str):
        yield tree, base
    elif isinstance(tree, dict):
        for key, item in tree.items():
            yield from paths(item, (*base, f"[{_key(key)}]"))
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
