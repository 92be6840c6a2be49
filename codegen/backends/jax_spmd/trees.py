"""Trees of arguments and results as Python text.

In the tables of a module every node is a dict, a list or a tuple. A node of another class becomes a
tuple of its children, in `jax.tree` order. The module flattens arguments in the caller's own
classes, and returns results in the arguments' classes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shardwright.codegen.text.python_text import INDENT, WIDTH

ENDS: dict[type, tuple[str, str]] = {list: ("[", "]"), tuple: ("(", ")"), dict: ("{", "}")}
Path = tuple[str, ...]
"""A variable and the steps of access to a leaf, one part each: `p`, `["w1"]`, `[0]`, `.step`."""


def tree_lines(tree: Any, prefix: str = "", suffix: str = "", indent: int = 0) -> list[str]:
    """Format a tree of texts as lines: one line if it fits, otherwise one line per item."""
    line = f"{prefix}{flat(tree)}{suffix}"
    if len(line) + indent * len(INDENT) <= WIDTH:
        return [line]
    if type(tree) not in ENDS or not tree:
        return [f"{prefix}(", INDENT + flat(tree), f"){suffix}"] if prefix else [line]
    start, end = ENDS[type(tree)]
    out = [f"{prefix}{start}"]
    shown = list(_items(tree))
    if is_one_often(tree):
        shown, suffix = shown[:1], f" * {len(tree)}{suffix}"
    for name, item in shown:
        out += [INDENT + inner for inner in tree_lines(item, name, ",", indent + 1)]
    return [*out, f"{end}{suffix}"]


def is_one_often(tree: Any) -> bool:
    """Return whether a tree is a list or tuple of at least three equal, non-empty nodes."""
    several = isinstance(tree, list | tuple) and len(tree) > 2 and bool(tree[0])
    return several and type(tree[0]) in ENDS and all(item == tree[0] for item in tree)


def _items(tree: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(tree, dict):
        yield from ((f"{_key(key)}: ", item) for key, item in tree.items())
    else:
        yield from (("", item) for item in tree)


def flat(tree: Any) -> str:
    if type(tree) not in ENDS:
        return str(tree)
    start, end = ENDS[type(tree)]
    inside = ", ".join(name + flat(item) for name, item in _items(tree))
    comma = "," if isinstance(tree, tuple) and len(tree) == 1 else ""
    return f"{start}{inside}{comma}{end}"


def _key(key: object) -> str:
    return f'"{key}"' if isinstance(key, str) and not {'"', "\\"} & {*key} else repr(key)


def is_plain(tree: Any) -> bool:
    """Return whether a node can be written as text: a dict with string or integer keys, a list or a
    tuple."""
    if type(tree) is dict:
        return all(type(key) in (str, int) for key in tree)
    return type(tree) in (list, tuple)


def _children(tree: Any) -> list[tuple[Any, Any]]:
    """Return a node's children, each with its key, in `jax.tree` order."""
    from jax.tree_util import tree_flatten_with_path  # jax is not needed to emit other modules

    found = tree_flatten_with_path(tree, is_leaf=lambda x: x is not tree)[0]
    return [(path[0], item) for path, item in found]


def plain(tree: Any) -> Any:
    """Replace all nodes of a tree of texts other than dicts, lists and tuples by tuples."""
    if isinstance(tree, str) or tree is None:
        return tree
    if type(tree) is dict and is_plain(tree):
        return {key: plain(item) for key, item in tree.items()}
    if is_plain(tree):
        return type(tree)(map(plain, tree))
    return tuple(plain(item) for _, item in _children(tree))


def paths(tree: Any, base: Path) -> Iterator[tuple[str, Path]]:
    """Yield each leaf with its path, which starts with `base`. The path is empty if no expression
    reaches the leaf."""
    if isinstance(tree, str):
        yield tree, base
    elif isinstance(tree, dict) and is_plain(tree):
        for key, item in tree.items():
            yield from paths(item, (*base, f"[{_key(key)}]") if base else ())
    elif tree is not None:
        for key, item in _children(tree):
            way = _way(tree, key, item)
            yield from paths(item, (*base, way) if base and way else ())


def _way(tree: Any, key: Any, item: Any) -> str:
    """Return the part of a path that leads from a node to an item, or "" if no expression does."""
    from jax.tree_util import DictKey, GetAttrKey, SequenceKey

    match key:
        case SequenceKey(number) if is_plain(tree):
            return f"[{number}]"
        case GetAttrKey(name) if name.isidentifier() and getattr(tree, name, None) is item:
            return f".{name}"
        case DictKey(name) if type(name) in (str, int) and isinstance(tree, Mapping):
            return f"[{_key(name)}]" if tree[name] is item else ""
    return ""


def restored(tree: Any, text: str, arguments: Sequence[tuple[Any, str]]) -> tuple[Any, bool]:
    """Return the expression that restores the classes of the results, and whether it restores all
    of them.

    `tree`: the results; `text`: the expression for the results as a plain tree; `arguments`:
    structures of the arguments' nodes, each with its expression. Classes come from equal structures
    in arguments.
    """
    if is_classless(tree):
        return text, True
    structure = _structure(tree)
    found = next((path for known, path in arguments if _equal(known, structure)), None)
    if found is not None:
        return f"like({found}, {text})", True
    if not is_plain(tree):
        return text, False
    keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
    made = [restored(tree[key], f"{text}[{_key(key)}]", arguments) for key in keys]
    items = [item for item, _ in made]
    known = dict(zip(keys, items, strict=True)) if isinstance(tree, dict) else type(tree)(items)
    return known, all(is_known for _, is_known in made)


def is_classless(tree: Any) -> bool:
    if isinstance(tree, str) or tree is None:
        return True
    items = tree.values() if isinstance(tree, dict) else tree
    return is_plain(tree) and all(map(is_classless, items))


def nodes_with_classes(tree: Any, path: Path) -> Iterator[tuple[Any, str]]:
    """Yield the structure and the expression of each node that has a class other than dict, list
    and tuple, or that contains such a node."""
    if is_classless(tree):
        return
    yield _structure(tree), "".join(path)
    for key, item in _children(tree):
        way = _way(tree, key, item)
        if way:
            yield from nodes_with_classes(item, (*path, way))


def _structure(tree: Any) -> Any:
    import jax

    return jax.tree.structure(tree)


def _equal(one: Any, other: Any) -> bool:
    """Return whether structures are equal, or False if the static data of their classes cannot be
    compared."""
    try:
        return bool(one == other)
    except Exception:  # comparing static data may raise anything
        return False


def tree_of(places: Sequence[Path], leaves: Sequence[str]) -> dict[Any, Any]:
    """Return nested dicts with the leaves at these paths."""
    tree: dict[Any, Any] = {}
    for place, leaf in zip(places, leaves, strict=True):
        *outer, last = (ast.literal_eval(part)[0] for part in place)
        inner = tree
        for key in outer:
            inner = inner.setdefault(key, {})
        inner[last] = leaf
    return tree
