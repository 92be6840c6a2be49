"""Many descriptions from one TOML file of [[reshard]] tables, with errors located in the file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shardwright.codegen.spec.description import Description, describe
from shardwright.codegen.spec.group import Group, read_groups
from shardwright.ir.errors import InputError

_HEADER = re.compile(r"^[ \t]*\[\[[ \t]*reshard[ \t]*\]\]", re.MULTILINE)
_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


def load_toml(path: str | Path) -> tuple[Description, ...]:
    """Return the descriptions of a TOML file, in its order.

    Keys of a table are the command line's flags with underscores. Names differ from each other,
    in more than case.
    """
    path = Path(path)
    text = read_text(path)
    tables = _tables(path, text)
    places = _places(text, len(tables))
    found: dict[str, Description] = {}
    for table, place in zip(tables, places, strict=True):
        description = _described(path, text, table, place)
        folder = description.name.casefold()  # as file systems have it that ignore case
        if folder in found:
            error = _not_distinct(description.name, found[folder].name)
            raise _located(error, path, text, table, place)
        found[folder] = description
    return tuple(found.values())


def load_groups(path: str | Path) -> tuple[Group, ...]:
    """Return the groups of a TOML file, whose members are reshards of the same file."""
    path = Path(path)
    names = {description.name for description in load_toml(path)}
    groups = read_groups(tomllib.loads(read_text(path)).get("group", []), path)
    for number, group in enumerate(groups):
        try:
            group.check(names | {other.name for other in groups[:number]}, names)
        except InputError as error:
            raise error.named(f"{path}, group {group.name!r}, {error.argument}") from None
    return groups


def _not_distinct(name: str, other: str) -> InputError:
    same = name == other
    return InputError(
        "two reshards of one name" if same else "two reshards whose names differ only in case",
        argument="name",
        got=name if same else f"{name} beside {other}",
        expected="a name of its own for each reshard"
        + ("" if same else ", for file systems that ignore case too"),
    )


def read_text(path: Path) -> str:
    """Return the text of a file; that it cannot be read is a mistake of the user's."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError("not a text file in UTF-8", argument=str(path)) from None
    except OSError as error:
        raise InputError(
            f"cannot be read: {error.strerror}",
            argument=str(path),
            expected="a file that exists and can be read",
        ) from None


def _tables(path: Path, text: str) -> list[dict[str, Any]]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _not_toml(path, text, str(error)) from None
    for key in document:
        if key not in ("reshard", "group"):
            raise InputError(
                "unknown table",
                argument=str(path),
                got=key,
                expected="[[reshard]] and [[group]] tables only",
            )
    tables = document.get("reshard", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise InputError(
            "reshards are an array of tables", argument=str(path), expected="[[reshard]] tables"
        )
    if not tables:
        raise InputError("describes no reshard", argument=str(path), expected="[[reshard]] tables")
    return tables


def _not_toml(path: Path, text: str, message: str) -> InputError:
    place = _PLACE.search(message)
    rule = "not TOML: " + _PLACE.sub("", message)
    if place is None or place[1] is None:
        return InputError(rule, argument=str(path), expected="[[reshard]] tables")
    line, column = int(place[1]), int(place[2])
    start = sum(len(row) for row in text.splitlines(keepends=True)[: line - 1]) + column - 1
    return InputError(rule, argument=f"{path}, line {line}", text=text, span=(start, start + 1))


def _places(text: str, count: int) -> list[tuple[int, int] | None]:
    """Return where each table stands in the text; unknown if a multi-line text holds what looks
    like one.

    tomllib tells values only, so the headers are looked for.
    """
    starts = [match.start() for match in _HEADER.finditer(text)]
    if len(starts) != count:
        return [None] * count
    return list(zip(starts, [*starts[1:], len(text)], strict=True))


def _described(
    path: Path, text: str, table: dict[str, Any], place: tuple[int, int] | None
) -> Description:
    try:
        return describe(table)
    except InputError as error:
        raise _located(error, path, text, table, place) from None


def _located(
    error: InputError, path: Path, text: str, table: dict[str, Any], place: tuple[int, int] | None
) -> InputError:
    """Return the error with the file, line and reshard before the key, and a caret in the file."""
    key = error.argument or ""
    name = table.get("name")
    named = f"reshard {name!r}, {key}" if isinstance(name, str) and key != "name" else key
    if place is None:
        return error.named(f"{path}, {named}")
    span = _span(error, text, key, table.get(key), place)
    line = text.count("\n", 0, span[0]) + 1
    return error.within(text, span, f"{path}, line {line}, {named}")


def _span(
    error: InputError, text: str, key: str, value: object, place: tuple[int, int]
) -> tuple[int, int]:
    """Return the span of the offending part, if the value stands in the file as it is; else of
    the whole entry."""
    entry = next(_entries(text, key, place), None)
    if entry is None:
        header = _HEADER.match(text, place[0])
        return (text.index("[[", place[0]), header.end() if header else place[1])
    if not isinstance(value, str) or not value:
        return entry
    begin = text.find(value, text.index("=", entry[0]), entry[1])
    if begin < 0:
        return entry
    if error.text == value and error.span is not None:
        return (begin + error.span[0], begin + error.span[1])
    return (begin, begin + len(value))


def _entries(text: str, key: str, place: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Yield the spans of the lines in a table that start with `key =`."""
    pattern = re.compile(rf"""^[ \t]*["']?{re.escape(key)}["']?[ \t]*=[^\n]*""", re.MULTILINE)
    for match in pattern.finditer(text, *place):
        line = match[0]
        lead = len(line) - len(line.lstrip())
        yield (match.start() + lead, match.start() + len(line.rstrip()))
