"""Read TOML files as tables that know their positions, so that errors can point into the file.

tomllib returns values without positions. Statements are located in text that tomllib has accepted,
so it suffices to skip strings and comments and to count brackets.
"""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shardwright.ir.errors import InputError, Span, unknown

_TOKEN = re.compile(
    # a multi-line string may end in its own quote character
    r'"""(?:\\.|[^\\])*?"{3,5}' + r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"' + r"|'[^'\n]*'"
    r"|\#[^\n]*|[\[\]{},\n]",
    re.DOTALL,
)
_KEY = re.compile(r"""("[^"\n]*"|'[^'\n]*'|[\w-]+)[^=\n]*=\s*""")
_HEADER = re.compile(r"\[{1,2}\s*([^\]]*?)\s*\]{1,2}")
_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


@dataclass(frozen=True)
class TablePlace:
    """The position of a table in the text.

    `span`: the span of its header, or of the whole table if it is inline; None for a document.
    `entries`: by key, the spans of the entry and of its value. `tables`: by name, the tables within
    it that have headers.
    """

    span: Span | None
    entries: Mapping[str, tuple[Span, Span]] = field(default_factory=dict)
    tables: Mapping[str, tuple[TablePlace, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """A table of a file. `what` is its name in messages, "" for the document; `place` is None if
    the position is unknown."""

    path: Path
    text: str
    what: str
    values: Mapping[str, Any]
    place: TablePlace | None

    def many(self, key: str, what: str) -> tuple[Table, ...]:
        """Return the tables of the array at a key, which may have headers or be inline. Return no
        tables if the key is missing.

        Raises InputError for any other value.
        """
        listed = self.values.get(key, [])
        if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
            raise self.located(
                InputError(
                    f"{key} must be an array of tables", argument=key, expected=_form(self, key)
                )
            )
        places = self._places(key)
        found = places if len(places) == len(listed) else (None,) * len(listed)
        pairs = zip(listed, found, strict=True)
        return tuple(Table(self.path, self.text, what, each, place) for each, place in pairs)

    def one(self, key: str, what: str) -> Table | None:
        """Return the table at a key, or None. Raises InputError for any other value."""
        if key not in self.values:
            return None
        value, places = self.values[key], self._places(key)
        if not isinstance(value, dict):
            raise self.located(
                InputError(f"{key} must be a table", argument=key, expected=f"[{key}]")
            )
        return Table(self.path, self.text, what, value, places[0] if len(places) == 1 else None)

    def _places(self, key: str) -> tuple[TablePlace, ...]:
        if self.place is None:
            return ()
        if key in self.place.tables:
            return self.place.tables[key]
        if key not in self.place.entries:
            return ()
        bare, value = _bare(self.text), self.place.entries[key][1]
        if bare[value[0]] == "{":
            return (_inline(bare, value),)
        listed = _parts(bare, (value[0] + 1, value[1] - 1), ",")
        return tuple(_inline(bare, span) for span in listed if bare[span[0]] == "{")

    def located(self, error: InputError) -> InputError:
        """Return an error about a key, with the file, line and table in front and a caret into the
        file."""
        key, name = error.argument or "", self.values.get("name")
        is_named = isinstance(name, str) and bool(self.what) and key != "name"
        named = [f"{self.what} {name!r}" if is_named else self.what if key != "name" else "", key]
        said = ", ".join(part for part in named if part)
        span = None if self.place is None else self._span(error, key, self.place)
        if span is None:
            return error.named(", ".join(part for part in (str(self.path), said) if part))
        line = self.text.count("\n", 0, span[0]) + 1
        where = f"{self.path}, line {line}" + (f", {said}" if said else "")
        return error.within(self.text, span, where)

    def _span(self, error: InputError, key: str, place: TablePlace) -> Span | None:
        """Return the most precise known span of an error: the span of the key, of the offending
        part of the value, of the whole value, of the entry, or of the table."""
        if key not in place.entries:
            if key not in place.tables:
                return place.span
            found = place.tables[key][0]
            named = str(error.got), re.split("[:,] ", error.rule)[0]  # the name of a rule or tensor
            return next((found.entries[x][0] for x in named if x in found.entries), found.span)
        entry, (start, end) = place.entries[key]
        if error.got == key:
            begin = self.text.index(key, entry[0])
            return (begin, begin + len(key))
        value = self.values.get(key)
        if not isinstance(value, str) or not value:
            return entry
        begin = self.text.find(value, start, end)
        if begin < 0:
            return entry
        if error.text == value and error.span is not None:
            return (begin + error.span[0], begin + error.span[1])
        return (begin, begin + len(value))


def _form(table: Table, key: str) -> str:
    return f"{key} = [{{…}}, …]" if table.what else f"[[{key}]] tables"


def check_keys(given: Iterable[str], known: Iterable[str], required: Mapping[str, str]) -> None:
    """Raise InputError for an unknown key, and for a missing required key.

    `required`: by key, an example of a value. If an unknown key is a required key with a suffix,
    such as `lhs_shape`, and the example is a table, the error shows the example.
    """
    given, known = tuple(given), tuple(known)
    for key in given:
        if key not in known:
            start = key.partition("_")[0]
            example = required.get(start, "")
            expected = f"{start} = {example}" if example.startswith("{") else None
            raise unknown("unknown key", key, known, key, expected)
    for key, example in required.items():
        if key not in given:
            raise InputError("missing", argument=key, expected=f"{key} = {example}")


def read_text(path: Path) -> str:
    """Return the text of a file without a byte-order mark. Raises InputError if it cannot be
    read."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("the file must be UTF-8 text", argument=str(path)) from None
    except OSError as error:
        raise InputError(
            f"cannot be read: {error.strerror}",
            argument=str(path),
            expected="a file that exists and can be read",
        ) from None


def read_toml(path: Path) -> Table:
    """Parse a TOML file. Raises InputError if it cannot be read or is not TOML."""
    text = read_text(path)
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _not_toml(path, text, str(error)) from None
    return Table(path, text, "", values, _document(text))


def _not_toml(path: Path, text: str, message: str) -> InputError:
    place = _PLACE.search(message)
    rule = "not TOML: " + _PLACE.sub("", message)
    if place is None or place[1] is None:
        return InputError(rule, argument=str(path), expected="[[reshard]] tables")
    line, column = int(place[1]), int(place[2])
    start = sum(len(row) for row in text.splitlines(keepends=True)[: line - 1]) + column - 1
    return InputError(rule, argument=f"{path}, line {line}", text=text, span=(start, start + 1))


def _bare(text: str) -> str:
    """Return a text with its comments replaced by spaces, so that positions stay the same."""
    return _TOKEN.sub(lambda m: " " * len(m[0]) if m[0][0] == "#" else m[0], text)


def _document(text: str) -> TablePlace:
    bare = _bare(text)
    top: dict[str, tuple[Span, Span]] = {}
    entries, tables = top, defaultdict[str, list[TablePlace]](list)
    # The subtables of the latest table of each name.
    inside: dict[str, dict[str, tuple[TablePlace, ...]]] = {}
    for span in _parts(bare, (0, len(bare)), "\n"):
        header = _HEADER.fullmatch(bare, *span)
        if header is None:
            entries.update(_entry(bare, span))
        else:
            entries, name = {}, header[1].strip("\"'")
            inside[name] = {}
            place = TablePlace(span, entries, inside[name])
            tables[name].append(place)
            outer, _, inner = name.rpartition(".")
            if outer in inside:
                inside[outer][inner] = (*inside[outer].get(inner, ()), place)
    return TablePlace(None, top, {name: tuple(places) for name, places in tables.items()})


def _inline(bare: str, span: Span) -> TablePlace:
    entries: dict[str, tuple[Span, Span]] = {}
    for part in _parts(bare, (span[0] + 1, span[1] - 1), ","):
        entries.update(_entry(bare, part))
    return TablePlace(span, entries)


def _entry(bare: str, span: Span) -> dict[str, tuple[Span, Span]]:
    """Return a dict from the key of a statement `key = value` to the spans of the statement and of
    the value; empty for any other text."""
    key = _KEY.match(bare, *span)
    return {} if key is None else {key[1].strip("\"'"): (span, (key.end(), span[1]))}


def _parts(bare: str, span: Span, separator: str) -> Iterator[Span]:
    """Yield the non-empty spans between separators outside brackets and strings."""
    depth, start, marks = 0, span[0], []
    for token in _TOKEN.finditer(bare, *span):
        mark = token[0]
        depth += (mark in ("[", "{")) - (mark in ("]", "}"))
        if mark == separator and depth == 0:
            marks.append((start, token.start()))
            start = token.end()
    for begin, end in (*marks, (start, span[1])):
        part = bare[begin:end]
        if part.strip():
            yield begin + len(part) - len(part.lstrip()), begin + len(part.rstrip())
