"""Programs as graphs: what leads to what, what is left out of large ones, where nodes are drawn."""

from __future__ import annotations

import random
import xml.etree.ElementTree as ElementTree
from collections import defaultdict

import jax
import jax.numpy as jnp
import program_patterns
import pytest
import random_functions

import shardwright as sw
from shardwright.codegen.show.graph_layout import GraphPlaces, place
from shardwright.codegen.show.program_graph import ProgramGraph, graph_of
from shardwright.codegen.show.program_svg import WHOLE, ProgramPicture, program_svg
from shardwright.codegen.show.svg_text import COLOURS

PATTERNS = {each.name: each for each in program_patterns.small_patterns()}


def of_pattern(name: str, mode: str = "as_shardy") -> sw.Partitioned:
    found = PATTERNS[name]
    return sw.partition(
        found.fn,
        *found.avals,
        mesh=found.mesh,
        in_shardings=found.inputs,
        out_shardings=found.output,
        mode=mode,
    )


def deep(layers: int, *, alike: bool = False) -> sw.Partitioned:
    """So many layers of a perceptron, with weights that are gathered; `alike`: with one factor."""

    def fn(x: jax.Array, ws: list[jax.Array]) -> jax.Array:
        for number, w in enumerate(ws):
            x = jnp.tanh(x @ w) * (2 if alike else 2 + number) + 1
        return x

    shape = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    rows = '[{"d"}, {}]'
    return sw.partition(
        fn, shape, [shape] * layers, mesh=sw.Mesh({"d": 4}), in_shardings=rows, out_shardings=rows
    )


def some_random(seed: int) -> sw.Partitioned | None:
    """A random function; None where its arguments do not divide."""
    mesh = sw.Mesh({"a": 2, "b": 2, "c": 4})
    made = random_functions.case(seed, True, meshes=(mesh,))
    program = sw.partition(
        made, *made.avals, mesh=mesh, in_shardings=made.inputs, out_shardings=made.outputs
    )
    try:
        return program if program.local else None
    except sw.InputError:
        return None


def texts(graph: ProgramGraph) -> set[str]:
    return {value.text for value in graph.values}


def test_the_graph_of_a_loop() -> None:
    """What is inside stands in it once, with how often it runs."""
    graph = graph_of(of_pattern("8 micro-batches in a scan").local)
    assert texts(graph) >= {
        "batches: f32[8,4096@d,1024]",
        "body_tanh: f32[4096@d,1024] (x8)",
        "body_dot_2: f32[1024,1024]+d (x8)",
        "body_dot_2: f32[1024,1024] (x8)",
        "scan: f32[1024,1024]",
    }
    (move,) = [each for each in graph.edges if each.number]
    assert move.label == "C1 all-reduce d 7 MiB x8"
    ends = graph.values[move.source], graph.values[move.target]
    assert [end.split for end in ends] == ["whole +d", "whole"]
    (result,) = [value for value in graph.values if value.is_result]
    assert result.name == "scan"


def behind(graph: ProgramGraph) -> list[set[int]]:
    """The values that each value depends on."""
    found: list[set[int]] = []
    into = defaultdict(list)
    for each in graph.edges:
        assert each.source < each.target
        into[each.target].append(each.source)
    for number in range(len(graph.values)):
        found.append(set().union(*(found[source] | {source} for source in into[number]), set()))
    return found


@pytest.mark.parametrize("seed", range(8))
def test_what_is_left_out_is_led_through(seed: int) -> None:
    """Values around communications depend on each other just as they do in the whole graph, every
    communication is an edge, and no dashed edge says what others say."""
    program = some_random(seed)
    if program is None:
        return
    whole = graph_of(program.local)
    part = whole.around_communications()
    numbers = [each.number for each in whole.edges if each.number]
    found = [each.number for each in program.communications for _ in range(each.values)]
    assert sorted(numbers) == found
    assert sorted(each.number for each in part.edges if each.number) == sorted(numbers)
    place = [whole.values.index(value) for value in part.values]
    if len(set(whole.values)) < len(whole.values):
        return  # values that look the same cannot be told apart here
    all_behind, part_behind = behind(whole), behind(part)
    for number, found in enumerate(part_behind):
        wanted = {at for at, old in enumerate(place) if old in all_behind[place[number]]}
        assert found == wanted
    for each in part.edges:
        if each.hidden:
            others = {edge.source for edge in part.edges if edge.target == each.target}
            assert not any(each.source in part_behind[other] for other in others)


@pytest.mark.parametrize("seed", range(12))
def test_nodes_and_edges_keep_apart(seed: int) -> None:
    """In a row nothing overlaps, what passes it neither; every edge leads down."""
    rng = random.Random(seed)
    count = rng.randint(2, 30)
    widths = [rng.uniform(20, 200) for _ in range(count)]
    edges = [
        (source, target)
        for target in range(1, count)
        for source in rng.sample(range(target), rng.randint(0, min(3, target)))
    ]
    found = place(widths, edges, 10)
    assert overlapping(widths, edges, found) == []
    for (source, target), route in zip(edges, found.routes, strict=True):
        assert found.rows[target] - found.rows[source] == len(route) + 1
    assert max(found.rows) == found.count - 1


def overlapping(
    widths: list[float], edges: list[tuple[int, int]], found: GraphPlaces
) -> list[tuple[float, float]]:
    """Ends of neighbours in a row that overlap."""
    rows = defaultdict(list)
    for row, middle, width in zip(found.rows, found.middles, widths, strict=True):
        rows[row].append((middle - width / 2, middle + width / 2))
    for (source, _), route in zip(edges, found.routes, strict=True):
        for row, middle in enumerate(route, found.rows[source] + 1):
            rows[row].append((middle, middle))
    pairs = [
        pair for row in rows.values() for pair in zip(sorted(row), sorted(row)[1:], strict=False)
    ]
    return [(a[1], b[0]) for a, b in pairs if a[1] > b[0] + 1e-6]


def test_an_overlap_is_found() -> None:
    widths, edges = [20.0, 20.0, 20.0], [(0, 2), (1, 2)]
    found = place(widths, edges, 10)
    assert overlapping(widths, edges, found) == []
    assert len(overlapping([20.0, 70.0, 20.0], edges, found)) == 1


@pytest.mark.parametrize("name", PATTERNS)
def test_the_picture(name: str) -> None:
    """It is XML, says every value and communication, and is the same each time."""
    program = of_pattern(name)
    picture = program_svg(program)
    root = ElementTree.fromstring(picture)
    said = "".join(root.itertext())
    for value in graph_of(program.local).values:
        assert value.text in said
    for each in program.communications:
        assert f"C{each.number} {each.op.replace('_', '-')}" in said
    assert picture == program_svg(of_pattern(name))


def test_colours_are_ways_to_be_split() -> None:
    """Equal where these are equal, and named in the legend."""
    picture = ProgramPicture.of(graph_of(of_pattern("a parallel block").local))
    assert picture.legend == {
        "-, @t": COLOURS[0],
        "@t": COLOURS[1],
        "whole +t": COLOURS[2],
        "whole": "#ffffff",
    }


def test_layers_that_are_alike_are_drawn_once() -> None:
    program = deep(12, alike=True)
    graph = graph_of(program.local)
    assert len(graph.values) < WHOLE
    assert [each.times for each in graph.values if each.name.startswith("x_tanh")] == [12]
    said = "".join(ElementTree.fromstring(program_svg(program)).itertext())
    assert said.count("C1 all-gather d 12 KiB x12") == 1
    assert all(edge.source < edge.target for edge in graph.edges)


def test_a_large_program_is_drawn_around_its_communications() -> None:
    program = deep(12)
    assert len(graph_of(program.local).values) > WHOLE
    said = "".join(ElementTree.fromstring(program_svg(program)).itertext())
    assert "Values around communications; dashed: through others." in said
    assert "tanh" not in said
    assert said.count("C12 all-gather d 12 KiB") == 1
    few = "".join(ElementTree.fromstring(program_svg(deep(2))).itertext())
    assert "dashed" not in few
    assert "x_tanh_2: f32[64@d,64]" in few
