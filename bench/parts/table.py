"""Print rows as Markdown: facts about the run, a summary, the failures, and a table for each
part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bench.parts.attempt import Row


@dataclass(frozen=True)
class Section:
    """The format of a part's rows. `text`: a sentence about the columns; `columns`: the heading for
    each key of a row; `summary`: a function that summarizes the rows. Without columns, rows are
    only counted."""

    part: str
    text: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    summary: Callable[[Sequence[Row]], str] = lambda rows: ""


@dataclass(frozen=True)
class Page:
    """The title, the first paragraph and the sections of a page."""

    title: str
    text: str
    sections: tuple[Section, ...]


def markdown(page: Page, about: Mapping[str, str], rows: Sequence[Row]) -> str:
    """Return the whole text of a page for rows. `about`: facts about the run, by name."""
    parts = [(section, merged(_of(section.part, rows))) for section in page.sections]
    parts = [(section, mine) for section, mine in parts if mine]
    said = "; ".join(f"{name} {value}" if name else value for name, value in about.items())
    lines = [f"# {page.title}", "", page.text, "", f"{said}.", ""]
    lines += [f"- {_counted(section, mine)}" for section, mine in parts]
    lines += _failures(rows)
    for section, mine in parts:
        lines += _table(section, mine)
    return "\n".join(lines) + "\n"


def _of(part: str, rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["part"] == part]


def count(rows: Sequence[Row]) -> str:
    """Say how many rows are right, how many ran, and how many were left out."""
    ran = [row for row in rows if row["ok"] is not None]
    right = sum(row["ok"] for row in ran)
    left = len(rows) - len(ran)
    return f"{right} of {len(ran)} right" + f", {left} left out" * bool(left)


def _counted(section: Section, rows: Sequence[Row]) -> str:
    said = section.summary([row for row in rows if row["ok"]])
    return f"**{section.part}**: {count(rows)}. {said}".rstrip()


def merged(rows: Sequence[Row]) -> list[Row]:
    """Merge the rows of all ranks for the same case. A merged row is right if all its rows are, and
    has the range of each number."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["name"], []).append(row)
    return [each for same in found.values() for each in (_merge(same) if _ranked(same) else same)]


def _ranked(rows: Sequence[Row]) -> bool:
    return all("rank" in row for row in rows)


def _merge(rows: Sequence[Row]) -> list[Row]:
    first: Row = {"part": rows[0]["part"], "name": rows[0]["name"], "ranks": len(rows)}
    for key in dict.fromkeys(key for row in rows for key in row if key not in (*first, "rank")):
        values = [row[key] for row in rows if key in row]
        numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
        first[key] = _range(values) if numbers else values[0]
    return [first | {"ok": all(row["ok"] for row in rows)}]


def _range(values: Sequence[float]) -> float | str:
    low, high = min(values), max(values)
    return low if low == high else f"{low} to {high}"


def _failures(rows: Sequence[Row]) -> list[str]:
    """Return lines about the failures and the cases left out: each message once, with its cases."""
    lines = []
    for heading, ok in (("Wrong or failed", False), ("Left out", None)):
        cases: dict[str, Counter[str]] = {}
        for row in rows:
            if row["ok"] is ok:
                cases.setdefault(row["error"], Counter())[f"{row['part']}: {row['name']}"] += 1
        if cases:
            lines += ["", f"## {heading}", ""]
        lines += [f"- {_cell(error)} ({_few(names)})" for error, names in cases.items()]
    return lines


def _few(names: Counter[str], most: int = 4) -> str:
    listed = [f"{name}, {ranks} ranks" if ranks > 1 else name for name, ranks in names.items()]
    more = [f"and {len(listed) - most} more"] if len(listed) > most else []
    return "; ".join(listed[:most] + more)


def _table(section: Section, rows: Sequence[Row]) -> list[str]:
    shown = [row for row in rows if row["ok"] and section.columns.keys() & row.keys()]
    keys = [key for key in section.columns if any(key in row for row in shown)]
    if not keys:
        return []
    lines = ["", f"## {section.part}", "", *([section.text, ""] if section.text else [])]
    lines.append("| " + " | ".join(("case", *(section.columns[key] for key in keys))) + " |")
    lines.append("| --- |" + " ---: |" * len(keys))
    for row in shown:
        cells = (row["name"], *(row.get(key, "") for key in keys))
        lines.append("| " + " | ".join(map(_cell, cells)) + " |")
    return lines


def _cell(value: object) -> str:
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return " ".join(text.split()).replace("|", "/")
