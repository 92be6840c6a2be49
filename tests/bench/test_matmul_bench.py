"""Matmuls beside `jax.jit`: what either moves, by HLO for CPU and v5e, and how figures are told."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from sweeps import swept

from bench import matmul_bytes, matmul_time
from bench.matmul_bytes import MESHES, Moved, Triple, first, measured, read_line, rows, triples
from bench.matmuls import shardings
from shardwright.codegen.moves.matmul.plan import plan_matmul

PART = 16


def test_triples_differ_by_more_than_names() -> None:
    assert len(shardings(("x", "y"))) == 11
    assert len(shardings(("x",), 3)) == 4
    assert len(triples(MESHES[0])) == 11**3
    alike = triples({"x": 2, "y": 2})
    swapped = ('[{"y"}, {}]', "[{}, {}]", "[{}, {}]")
    assert swapped not in alike
    assert first({"x": 2, "y": 2}, swapped) in alike


@pytest.mark.parametrize("mesh", MESHES, ids=["2x4", "2x2x2"])
@pytest.mark.parametrize("part", swept(range(40), 40))
def test_never_more_than_the_least_of_xlas_programs(mesh: dict[str, int], part: int) -> None:
    """A part of all triples of shardings, in an order drawn once for all."""
    given = triples(mesh)[part * PART : (part + 1) * PART]
    found = measured(mesh, given)
    more = [each for each in zip(given, found, strict=True) if each[1].planned > each[1].least]
    assert more == []
    assert sum(each.planned < each.least for each in found) > PART // 2


def test_what_was_measured_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was cut goes on; what is of another mesh is another matmul."""
    asked = []

    def counted(axes: dict[str, int], given: Sequence[Triple]) -> list[Moved]:
        asked.append(len(given))
        return [Moved(sum(axes.values()), len("".join(each)), 3) for each in given]

    monkeypatch.setattr(matmul_bytes, "measured", counted)
    monkeypatch.setenv(matmul_bytes.KEPT_IN, str(tmp_path / "kept"))
    for mesh, count, new in ((0, 5, [5]), (0, 120, [100, 15]), (0, 120, []), (1, 3, [3])):
        axes, given = MESHES[mesh], triples(MESHES[mesh])[:count]
        asked.clear()
        found = matmul_bytes.kept(axes, given)
        assert asked == new
        assert found == [Moved(sum(axes.values()), len("".join(each)), 3) for each in given]


@pytest.mark.parametrize(
    ("triple", "most"),
    [
        (('[{}, {"y"}]', '[{"y"}, {"x"}]', '[{}, {"y"}]'), 16384),
        (('[{}, {"x"}]', '[{"x"}, {"y"}]', '[{}, {"x"}]'), 24576),
    ],
)
def test_steps_that_take_more_messages_and_fewer_bytes(
    triple: tuple[str, str, str], most: int
) -> None:
    """Of small tensors too: what XLA's programs move, counted once, and for all three more."""
    plan = plan_matmul(matmul_bytes.matmul_of(MESHES[0], triple), listed=0)
    assert plan.chosen.cost.received_max < 4 * most


def test_rows_of_bytes() -> None:
    found = [Moved(1, 2, 4), Moved(4, 4, 4), Moved(0, 0, 0)]
    cells = [row.split(" | ") for row in rows({"x": 2, "y": 4}, found)]
    assert [each[1] for each in cells] == ["3 of 1,331"] * 3
    assert cells[0][3:] == ["0.707", "0.500", "1.000", "1 / 2 / 0 |"]
    assert cells[1][3:] == ["0.500", "0.250", "1.000", "1 / 2 / 0 |"]


def test_what_modules_move_is_told_beside_both() -> None:
    said = read_line({"x": 8}, [Moved(4, 8, 6), Moved(4, 4, 4)], [(4, 8), (4, 5)])
    assert said == (
        "Of 2 modules of 8, compiled and read, on cpu 0 move more than was planned, 0 more than "
        "jit's; on v5e 2 move more than was planned, 2 more than jit's."
    )


def test_rows_of_time() -> None:
    (matmul,) = matmul_time.drawn(1)
    plan = plan_matmul(matmul, matmul_time.TOPOLOGY, listed=0)
    lines = matmul_time.table([plan] * 2, [[[2.0, 4.0], [4.0, 4.0]], [[1.0], [2.0]]])
    assert lines[0].startswith("Of medians, 2 matmuls: geometric mean 0.61, worst 0.75")
    assert lines[1].startswith("Of the least of each, 2 matmuls: geometric mean 0.50, worst 0.50")
    assert len(lines) == 6


@pytest.mark.slow
def test_programs_of_jit_that_give_no_product_are_counted() -> None:
    """One that moves less than there is to move, beside the same with its rows in mesh order."""
    wrong, right = (
        ('[{"x", "y"}, {"z"}]', '[{"z"}, {}]', f'[{{{rows}}}, {{"z"}}]')
        for rows in ('"y", "x"', '"x", "y"')
    )
    assert matmul_bytes.wrong(MESHES[1], [wrong, right]) == 1
    assert matmul_bytes.wrong(MESHES[1], [right]) == 0
