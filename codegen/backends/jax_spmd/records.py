"""Nodes of trees that are a class of the user's: NamedTuples, dataclasses that are registered with
JAX, and classes with `tree_flatten` and `tree_unflatten`."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from shardwright.codegen.backends.jax_spmd.names import RESERVED
from shardwright.ir.errors import InputError, in_a_line

PLAIN = (dict, list, tuple)


@dataclass(frozen=True)
class Record:
    """A node as text says it: `start`, the items, each after its own start, and `end`; `ways` lead
    from the node to its items, "" to one that is no leaf. `module` and `imported` are where its
    class is from."""

    module: str
    imported: str
    start: str
    items: tuple[tuple[str, Any], ...]
    end: str
    ways: tuple[str, ...]


def with_records(tree: Any, argument: str) -> Any:
    """Return a tree of texts whose nodes are dicts, lists, tuples and records.

    Raises InputError for any other node, and for one whose class cannot be imported.
    """
    if isinstance(tree, str) or tree is None:
        return tree
    if type(tree) is dict:
        return {key: with_records(item, argument) for key, item in tree.items()}
    if type(tree) in PLAIN:
        return type(tree)(with_records(item, argument) for item in tree)
    made = _record(tree, argument)
    items = tuple((name, with_records(item, argument)) for name, item in made.items)
    return dataclasses.replace(made, items=items)


def imports_of(tree: Any) -> Iterator[str]:
    """Yield the imports of the classes of a tree's records, one a module."""
    names: dict[str, set[str]] = defaultdict(set)
    for record in records_of(tree):
        names[record.module].add(record.imported)
    for module, own in sorted(names.items()):
        yield f"from {module} import {', '.join(sorted(own))}"


def records_of(tree: Any) -> Iterator[Record]:
    """Yield the records of a tree."""
    items: Iterable[Any] = ()
    if isinstance(tree, Record):
        yield tree
        items = (item for _, item in tree.items)
    elif type(tree) in PLAIN:
        items = tree.values() if isinstance(tree, dict) else tree
    for item in items:
        yield from records_of(item)


def _record(tree: Any, argument: str) -> Record:
    """Return a node whose items are what its class has."""
    from jax.tree_util import GetAttrKey, tree_flatten_with_path

    kind = type(tree)
    fields = getattr(kind, "_fields", None)
    if isinstance(tree, tuple) and fields is not None:
        return _by_field(kind, dict(zip(fields, tree, strict=True)), {}, argument)
    known = tree_flatten_with_path(tree, is_leaf=lambda x: x is not tree)[0]
    if dataclasses.is_dataclass(kind) and not _is_leaf(known, tree):
        keys = ((path[0], item) for path, item in known)
        items = {key.name: item for key, item in keys if isinstance(key, GetAttrKey)}
        if len(items) == len(known):
            names = [each.name for each in dataclasses.fields(kind) if each.init]
            fixed = {name: getattr(tree, name) for name in names if name not in items}
            return _by_field(kind, items, fixed, argument)
    if {"tree_flatten", "tree_unflatten"} <= {*dir(kind)}:
        children, fixed_part = tree.tree_flatten()
        start = f"{kind.__qualname__}.tree_unflatten({_literal(fixed_part, kind, argument)}, ["
        ways = tuple(f".tree_flatten()[0][{place}]" for place in range(len(children)))
        unnamed = tuple(("", item) for item in children)
        return Record(*_place(kind, argument), start, unnamed, "])", ways)
    raise _unsaid(kind.__name__, argument)


def _is_leaf(known: list[tuple[Any, Any]], tree: Any) -> bool:
    return len(known) == 1 and known[0][1] is tree


def _by_field(kind: type, items: dict[str, Any], fixed: dict[str, Any], argument: str) -> Record:
    """Return a record that is made by naming its fields; `fixed` are no leaves."""
    said = {name: _literal(value, kind, argument) for name, value in fixed.items()}
    named = tuple((f"{name}=", item) for name, item in (items | said).items())
    ways = (*(f".{name}" for name in items), *("" for _ in said))
    return Record(*_place(kind, argument), f"{kind.__qualname__}(", named, ")", ways)


def _place(kind: type, argument: str) -> tuple[str, str]:
    """Return the module of a class, and what is imported from it."""
    if "<locals>" in kind.__qualname__:
        raise InputError(
            "a module imports the classes of its trees, which must be at the top of theirs",
            argument=argument,
            got=kind.__qualname__,
            expected="a class outside of functions",
        )
    name = kind.__qualname__.partition(".")[0]
    if name in RESERVED:
        raise InputError(
            "a module imports the classes of its trees, and has another use for some names",
            argument=argument,
            got=name,
            expected="a class of another name",
        )
    return kind.__module__, name


def _literal(value: Any, kind: type, argument: str) -> str:
    """Return what a class has beside its items as text."""
    if isinstance(value, tuple):
        inner = ", ".join(_literal(each, kind, argument) for each in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, str) and value.isprintable() and not {'"', "\\"} & {*value}:
        return f'"{value}"'
    if value is None or type(value) in (bool, int, str) or _is_finite(value):
        return repr(value)
    raise InputError(
        "what a node of a tree has beside its items must be numbers, texts or tuples of these",
        argument=argument,
        got=f"{in_a_line(value)} of {kind.__name__}",
        expected="such values, or them as arguments of the function by themselves",
    )


def _is_finite(value: Any) -> bool:
    return type(value) is float and math.isfinite(value)


def _unsaid(got: str, argument: str) -> InputError:
    return InputError(
        "arguments and results of a program that is emitted must be trees that text can say",
        argument=argument,
        got=got,
        expected="dicts with string or integer keys, lists, tuples, NamedTuples, registered "
        "dataclasses, classes with tree_flatten and tree_unflatten, arrays",
    )
