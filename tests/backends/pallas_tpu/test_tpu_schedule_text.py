"""What modules say of schedules: many hops, long rows, what is no row, and what has none."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from lone import alone

from shardwright.codegen.backends.pallas_tpu.routed.text import hop_names, text_lines
from shardwright.codegen.backends.pallas_tpu.verify.contract import programs_of
from shardwright.codegen.backends.pallas_tpu.verify.deliveries import check_deliveries
from shardwright.codegen.backends.pallas_tpu.verify.trace import trace
from shardwright.codegen.planner import plan
from shardwright.codegen.verify.compare import MismatchError
from shardwright.codegen.verify.load import load
from shardwright.ir import Mesh, Reshard

SAID = "1 1a 1; 2 0b 3; 3 0a1b 4 2"


def module(folder: Path, said: str = SAID) -> Any:
    """The module of an all-to-all over four devices, with other ways."""
    mesh = Mesh({"x": 4})
    sides = mesh.sharding('[{"x"}, {}]'), mesh.sharding('[{}, {"x"}]')
    made = plan(Reshard((40, 48), "int32", *sides), "direct", topology="v5e:2x2")
    text = alone(made, "pallas_tpu")
    assert text.count(SAID) == 1
    (folder / "module.py").write_text(text.replace(SAID, said))
    return load(folder / "module.py")


def test_hops_beyond_the_letters_have_names_too(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    there = module(tmp_path)
    names = [*islice(hop_names(), 30)]
    assert names[:2] + names[23:26] == ["a", "b", "z", "aa", "ab"]
    assert not {"l", "o"} & {*"".join(names)}
    hops = [(1, 31, by) for by in range(1, 31)]
    rows = [f"{by} 11{name} {by + 30}" for by, name in enumerate(names, 1)]
    schedule = there.of_tiles(((1, 31),), hops, "; ".join(rows), there.SLOT)
    assert schedule.rounds == (tuple((*hop, 1) for hop in hops),)
    assert schedule.moves == tuple((by - 1, by + 30) for by in range(1, 31))


def test_rows_are_never_broken() -> None:
    """However long: a line may be too long, but what is said is what is meant."""
    rows = ["1 " + "0a/b1c" * 30 + " 1000" * 60, "2 0a 1", "3 " + "0b" * 40 + " 7" * 40]
    name, *lines, end = text_lines("WAYS", rows)
    assert (name, end) == ('WAYS = """', '"""')
    assert [row.strip() for row in " ".join(lines).split(";")] == rows
    assert text_lines("WAYS", rows[1:2]) == ['WAYS = "2 0a 1"']


def test_a_tile_that_has_no_way_is_found(tmp_path: Path) -> None:
    """At full size: what has no row goes nowhere."""
    pytest.importorskip("jax")
    wrong = module(tmp_path, "1 1a 1; 2 0b 2")
    (program,) = programs_of(wrong)
    said = "^nothing goes over offset 3, expected: a tile from rank 0 to rank 3$"
    with pytest.raises(MismatchError, match=said):
        check_deliveries(program, trace(wrong, program, 4))


NONE = {
    "1 1a 1, 2 0b 3": "a row as",
    "1  1a 1": "a row as",
    "1a 1": "a row as",
    "1 1A 1": "a row as",
    "1 1a/ 1": "a row as",
    "1 1a 1;": "a row as",
    "1 1a 1 2": "a slot for each hop, and sizes or none",
    "3 0a1b 4": "a slot for each hop, and sizes or none",
}


@pytest.mark.parametrize("text", NONE)
def test_rows_that_are_none_are_refused(text: str, tmp_path: Path) -> None:
    """When the module is imported: nothing is left out silently."""
    pytest.importorskip("jax")
    with pytest.raises(ValueError, match=f"^not {NONE[text]}"):
        module(tmp_path, text)
