"""The explorer of a program: its communication, graph and values on one self-contained page,
searchable by line."""

from __future__ import annotations

import json
import linecache
from collections.abc import Mapping, Sequence
from typing import Any

from shardwright.codegen.hardware.presets import name_of, topology_of
from shardwright.codegen.partition.partitioned import Partitioned
from shardwright.codegen.show.explorer import ExplorerText, plain
from shardwright.codegen.show.program_graph import ProgramGraph, graph_of
from shardwright.codegen.show.program_svg import ProgramPicture, drawn, value_lines
from shardwright.codegen.text.templates import render
from shardwright.ir.program import ops_of

ROWS = 60
"""The maximum number of rows in a list of values."""


def program_explorer(
    program: Partitioned,
    name: str,
    topology: str | None = None,
    totals: Sequence[Mapping[str, str | int | None]] = (),
) -> str:
    """Return the page of a program as deterministic HTML.

    `topology`: hardware for which the page also shows predicted seconds. `totals`: results of other
    partitioners, each with the keys name, received and why. Source lines are read from the user's
    files.
    """
    data = json.dumps({**program_data(program, topology), "totals": list(totals)}).replace(
        "<", "\\u003c"
    )
    title = f"{program.program.name} on {program.mesh}"
    return render("explorer/program.html.jinja", ExplorerText(plain(name), plain(title), data))


def program_data(program: Partitioned, topology: str | None = None) -> dict[str, Any]:
    """Return the page's data: the object of `plan --json` under "plan", values with their operands,
    and the drawing of the graph."""
    graph = graph_of(program.local)
    shown = drawn(graph)
    return {
        "plan": json.loads(program.to_json(topology)),
        "topology": None if topology is None else name_of(topology_of(topology)),
        "values": _values(program, shown),
        "edges": [[each.source, each.target, each.number] for each in shown.edges],
        "all": len(graph.values),
        "sources": _sources(program),
        "drawing": _drawing(ProgramPicture.of(shown)),
        "rows": ROWS,
    }


def _values(program: Partitioned, graph: ProgramGraph) -> list[dict[str, Any]]:
    known = {value.name for value in program.program.values}
    return [
        {
            "name": value.name,
            "type": value.type,
            "made_by": value.made_by,
            "line": value.line,
            "times": value.times,
            "result": value.is_result,
            "why": list(map(str, program.why(value.name))) if value.name in known else [],
        }
        for value in graph.values
    ]


def _sources(program: Partitioned) -> dict[str, str]:
    lines = {op.line for op in ops_of(program.program.body) if op.line is not None}
    found = {str(line): linecache.getline(line.file, line.number).strip() for line in lines}
    return {line: found[line] for line in sorted(found) if found[line]}


def _drawing(picture: ProgramPicture) -> dict[str, Any]:
    colours, values = picture.legend, picture.graph.values
    width, _ = picture.size
    top, bottom = picture.span
    boxes = [
        {
            "place": _rounded(picture.corner(number)),
            "lines": list(value_lines(value)),
            "colour": colours[value.split],
        }
        for number, value in enumerate(values)
    ]
    labels = [
        {
            "place": _rounded(picture.corner(len(values) + number)),
            "text": edge.label,
            "number": edge.number,
            "value": edge.target,
        }
        for number, edge in enumerate(picture.labelled)
    ]
    lines = [[path, edge.number, edge.hidden] for path, edge in picture.paths()]
    return {
        "view": _rounded((0, top - 8, width, bottom - top + 16)),
        "boxes": boxes,
        "labels": labels,
        "lines": lines,
        "legend": list(colours.items()),
    }


def _rounded(numbers: tuple[float, ...]) -> list[float]:
    return [round(number, 1) for number in numbers]
