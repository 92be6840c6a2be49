"""Read the files of a config: all included files, then the file itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shardwright.codegen.spec.description import SHARED
from shardwright.codegen.spec.toml_tables import Table, read_toml
from shardwright.ir.errors import InputError, unknown

_KEYS = (
    *("reshard", "collective", "matmul", "relayout", "model", "program", "group"),
    *("mesh", "defaults", "include", "out", "learned"),
)


@dataclass(frozen=True)
class ConfigFile:
    """A parsed file. `defaults`: its [defaults], then the [defaults] of the files that include
    it, innermost first."""

    root: Table
    defaults: tuple[Table, ...]


def config_files(path: Path) -> tuple[ConfigFile, ...]:
    """Return the parsed files that a file includes, then the file. Raises a located InputError for
    an unreadable file, a repeated or recursive include, and an unknown table or key."""
    return tuple(_files(path, (), (), set()))


def _files(
    path: Path, way: tuple[Path, ...], outer: tuple[Table, ...], seen: set[Path]
) -> Iterator[ConfigFile]:
    root, way = read_toml(path), (*way, path)
    seen.add(_absolute(path))
    for key, value in root.values.items():
        if key not in _KEYS:
            rule = "unknown table" if _is_table(value) else "unknown key"
            raise root.located(unknown(rule, key, _KEYS, key))
    if len(way) > 1 and "out" in root.values:
        raise root.located(
            InputError(
                "an included file must not set `out`",
                argument="out",
                got=root.values["out"],
                expected=f"`out` only in {way[0]}",
            )
        )
    own = _defaults(root)
    defaults = outer if own is None else (own, *outer)
    for name in _included(root):
        inner = Path(os.path.normpath(path.parent / name))
        _check_included(root, inner, way, seen)
        yield from _files(inner, way, defaults, seen)
    yield ConfigFile(root, defaults)


def _is_table(value: object) -> bool:
    listed = value if isinstance(value, list) and value else [value]
    return all(isinstance(each, dict) for each in listed)


def _defaults(root: Table) -> Table | None:
    table = root.one("defaults", "defaults")
    for key in () if table is None else table.values:
        if key not in SHARED and table is not None:
            raise table.located(unknown("unknown key", key, SHARED, key))
    return table


def _included(root: Table) -> list[str]:
    listed = root.values.get("include", [])
    if isinstance(listed, list) and all(isinstance(each, str) for each in listed):
        return listed
    error = InputError(
        "include must be a list of files",
        argument="include",
        got=listed,
        expected='paths relative to this file, for example ["more/reshards.toml"]',
    )
    raise root.located(error)


def _check_included(root: Table, path: Path, way: tuple[Path, ...], seen: set[Path]) -> None:
    rule, got, expected = "", str(path), ""
    steps = [_absolute(each) for each in way]
    if _absolute(path) in steps:
        circle = (*way[steps.index(_absolute(path)) :], path)
        files = (os.path.relpath(each, way[0].parent) for each in circle)
        rule, got = "includes must not form a cycle", " -> ".join(files)
        expected = "a file that does not include this one"
    elif _absolute(path) in seen:
        rule, expected = "a file must not be included twice", "an include of it in only one file"
    elif not path.is_file():
        rule, expected = "no such file", "a path relative to this file"
    if rule:
        raise root.located(InputError(rule, argument="include", got=got, expected=expected))


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))
