"""What the docstring of a module says of transfers and of shards, against the plan's."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest
from cases import describe, random_reshard

from shardwright.codegen.moves import plan
from shardwright.codegen.text.docstring import side_lines
from shardwright.codegen.text.table import LONGEST, cut_dims, transfer_table
from shardwright.ir import Mesh, Reshard
from shardwright.ir.exchange import Exchange
from shardwright.ir.plan import DirectPlan

Said = tuple[int, int, tuple[tuple[int, int], ...]]
SHARED = "A device sends the intersection of its range before and the receiver's after."
BOX = r"((?:\[\d+, \d+\)(?: x )?)+|all) from (\d+)"


def direct(reshard: Reshard) -> DirectPlan:
    found = plan(reshard, strategy="direct")
    assert isinstance(found, DirectPlan)
    return found


def on_eight(shape: tuple[int, ...], source: str, target: str) -> DirectPlan:
    mesh = Mesh({"x": 2, "y": 4})
    return direct(Reshard(shape, "float32", mesh.sharding(source), mesh.sharding(target)))


BESIDE = on_eight((8, 8), '[{"y"}, {"x"}]', '[{"y", "x"}, {}]')
BELOW = on_eight((50257, 768), '[{"x", "y"}, {}]', '[{"y"}, {"x"}]')
BRIEF = on_eight((4096, 64), '[{"x", "y"}, {}]', '[{}, {"x", "y"}]')


def parsed(lines: list[str]) -> Iterator[Said]:
    """Sender, receiver and box of everything that a table says is received."""
    receiver = -1
    for line in lines:
        if head := re.match(r" {4}(\d+) ", line):
            receiver = int(head[1])
        for box, sender in re.findall(BOX, line):
            ends = tuple((int(a), int(b)) for a, b in re.findall(r"\[(\d+), (\d+)\)", box))
            yield int(sender), receiver, ends


def moved(given: DirectPlan) -> list[Said]:
    """The same of the plan, of the dimensions that a table tells."""
    dims, found = cut_dims(given.exchange), given.transfers()
    return sorted(
        (int(sender), int(receiver), tuple((int(box[k][0]), int(box[k][1])) for k in dims))
        for sender, receiver, box in zip(found.sender, found.receiver, found.tensor, strict=True)
        if sender != receiver
    )


@pytest.mark.parametrize("given", [BESIDE, BELOW], ids=["beside", "below"])
def test_a_table_says_every_transfer(given: DirectPlan) -> None:
    table = transfer_table(given)
    assert ("receives" in table[1]) == (given is BESIDE)
    assert sorted(parsed(table)) == moved(given)
    wrong = [line.replace(" from 4", " from 5") for line in table]
    assert sorted(parsed(wrong)) != moved(given)


def test_a_long_table_says_from_whom() -> None:
    """And that this suffices: a tile is what both ranges share."""
    table = transfer_table(BRIEF)
    assert table[1:3] == [SHARED, ""]
    assert table[4].endswith(" from 1, 2, 3, 4, 5, 6, 7")
    assert len(table) == 12


def test_a_table_says_along_what_if_not_along_all() -> None:
    some = on_eight((4096, 64, 3), '[{"x", "y"}, {}, {}]', '[{}, {"x", "y"}, {}]')
    assert transfer_table(some)[1:4] == ["Ranges along dimensions 0, 1:", SHARED, ""]


def test_any_table_says_every_transfer_or_from_whom() -> None:
    """In lines that fit."""
    seen = set()
    for seed in range(120):
        reshard = random_reshard(seed)
        given = direct(reshard)
        table = transfer_table(given)
        assert all(len(line) <= 100 for line in table), describe(reshard)
        if any(line.startswith("A permutation") for line in table) or not table:
            continue
        full = SHARED not in table and bool(cut_dims(given.exchange))
        seen.add(full)
        assert not full or len(table) <= LONGEST + 4
        assert not full or sorted(parsed(table)) == moved(given), describe(reshard)
    assert True in seen


def shards(given: Exchange, stored: str | None) -> str:
    lines = side_lines("Source", "d1", "", given.source, stored)  # type: ignore[arg-type]
    return lines[2].strip() if len(lines) > 2 else ""


def test_how_short_shards_are_stored() -> None:
    uneven = on_eight((5, 23), '[{"x"}, {"y"}]', "[{}, {}]").exchange
    said = "The last shards along dimensions 0 and 1 are short or empty"
    assert shards(uneven, None) == f"{said}."
    assert shards(uneven, "dense") == f"{said}, and are stored without padding: device 7 has 2 x 5."
    assert shards(uneven, "padded") == f"{said}; they are padded at the end to 3 x 6."
    extents = np.diff(uneven.source.boxes()[7]).ravel().tolist()
    assert extents == [2, 5]
    empty = on_eight((3,), '[{"y"}]', "[{}]").exchange
    said = "The last shards along dimension 0 are short or empty, and are stored without padding."
    assert shards(empty, "dense") == said
    assert shards(on_eight((8,), '[{"y"}]', "[{}]").exchange, "dense") == ""
