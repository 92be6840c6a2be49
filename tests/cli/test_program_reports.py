"""What `plan` and `check` say of a program: seconds on a topology, what a change adds, a budget."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from a_program import MODULE, TABLE, forgotten, replaced, written
from commands import run

from shardwright.codegen.operations.emit.lockfile import changes

LINE = 'jnp.tanh(x @ p["w1"]) @ p["w2"]'
C1 = (
    "[C1] all-reduce over t, 128 B: dot_general sums over dimension 1 of tanh and dimension 0 of "
    'p_w2, split over "t"\n'
)
REMEDY = (
    '    to lower it, return result as [{"d", "t"}, {}]: a reduce-scatter takes half (64 B '
    "less in this row)\n"
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a function and a config."""
    written(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    forgotten()


def test_the_plan_of_a_program(home: Path) -> None:
    assert run("plan").out == (
        'step on <["d"=4, "t"=2]>: the busiest device receives 128 B\n'
        "its computation costs as much as receiving 230 B (a byte is worth 1,000 operations of a "
        "float32 matmul, or 5 bytes read or written; no topology is given)\n"
        + C1
        + "    a_step.py:5: out becomes f32[8@d,16]\n"
        + REMEDY
    )


def test_the_distance_to_a_lower_bound(home: Path) -> None:
    """Of `cheapest`: in the terminal, on the page and in plan.json."""
    written(home, table=TABLE + 'mode = "cheapest"\n')
    said = "oth together are within 1.02 times a lower bound of 354 B"
    assert run("plan").out.split("\n")[2] == f"b{said}"
    figures = json.loads(run("plan", "--json").out)
    assert (figures["cost"], figures["lower_bound"]) == (359, 354)
    run("emit")
    assert f"\nB{said}.\n" in (home / "generated/mlp/README.md").read_text()


def test_what_remedies_do_in_all(home: Path) -> None:
    """Of a sum that is a result; then of an argument that is gathered, too."""
    said = '    C1: 64 B, 64 B less with result as [{"d", "t"}, {}]\n'
    assert run("plan", "--explain").out.endswith(f"total bytes with the best remedy:\n{said}")
    split = ('"w1": \'[{}, {"t"}]\'', '"w1": \'[{"d"}, {"t"}]\'')
    written(home, replaced(MODULE, split, ("shape(8, 16)", "shape(512, 16)")))
    found = run("plan", "--explain").out.splitlines()
    assert found[-3].endswith("total bytes with the best remedy:")
    assert found[-2] == "    C1: 8 KiB, 768 B less with p['w1'] as [{}, {\"t\"}]"


def test_the_plan_on_a_topology(home: Path) -> None:
    """Given by a flag, or by the table, which is then in what is emitted."""
    said = (
        'step on <["d"=4, "t"=2]>: the busiest device receives 128 B, 2e-06 seconds on v5e:2x4\n'
        "its computation costs as much as receiving 70 B (on v5e:2x4 a byte is worth 3,943 "
        "operations of a float32 matmul, or 16.4 bytes read or written)\n"
        + C1
        + "    a_step.py:5: out becomes f32[8@d,16], in 2e-06 seconds\n"
        + REMEDY
    )
    assert run("plan", "--topology", "v5e:2x4").out == said
    assert "seconds" not in run("plan", "--json").out
    written(home, table=TABLE + 'topology = "v5e:2x4"\n')
    assert run("plan").out == said
    run("emit")
    lockfile = (home / "generated/mlp/plan.json").read_text()
    assert lockfile == run("plan", "--json").out
    (row,) = json.loads(lockfile)["communications"]
    assert (row["seconds"], row["saving"]) == (2e-06, 64)
    page = (home / "generated/mlp/README.md").read_text()
    assert "128 B in 1 communication, 2e-06 seconds on v5e:2x4.\n" in page
    assert page.endswith("a reduce-scatter takes half | 64 B | 2e-06 |\n")
    assert run("check").code == 0


def test_check_says_in_words_what_is_more(home: Path) -> None:
    run("emit")
    written(home, replaced(MODULE, (LINE, LINE + " + x.sum(0)")))
    found = run("check")
    assert found.code == 1
    assert found.out.startswith(
        "mlp: its communication differs from plan.json\n"
        "the busiest device receives 224 B, before 128 B\n"
        "one all-reduce over d of 96 B more, a_step.py:5\n"
        "mlp/README.md: would be emitted differently now\n"
    )


def test_check_says_nothing_of_lines_that_move(home: Path) -> None:
    """The files differ, what is communicated does not."""
    run("emit")
    written(home, replaced(MODULE, ("def step", "# a comment\ndef step")))
    found = run("check")
    assert found.code == 1
    assert found.out.startswith("mlp/README.md: would be emitted differently now\n")


def test_check_fails_over_the_budget(home: Path) -> None:
    """It says what is more, and that the program would not be emitted; files are as they were."""
    written(home, table=TABLE.replace("1KiB", "200B"))
    run("emit")
    before = (home / "generated/mlp/plan.json").read_bytes()
    written(home, replaced(MODULE, (LINE, LINE + " + x.sum(0)")), TABLE.replace("1KiB", "200B"))
    found = run("check")
    assert found.code == 1
    assert found.out == (
        "mlp: its communication differs from plan.json\n"
        "the busiest device receives 224 B, before 128 B\n"
        "one all-reduce over d of 96 B more, a_step.py:5\n"
        "mlp: would not be emitted now: budget: the program receives more than its budget\n"
        "got: 224 bytes, the most in " + C1 + "expected: at most 200 bytes\n"
    )
    found = run("emit")
    assert found.code == 2
    assert (home / "generated/mlp/plan.json").read_bytes() == before


def test_the_plan_over_the_budget_is_shown(home: Path) -> None:
    written(home, table=TABLE.replace("1KiB", "64B"))
    found = run("plan", "--json")
    assert found.code == 2
    assert json.loads(found.out)["bytes_received"] == 128
    assert found.err == (
        "error: shardwright.toml, line 7, program 'mlp', budget: the program receives more than "
        'its budget\n  budget = "64B"\n            ^^^\ngot: 128 bytes, the most in '
        + C1
        + "expected: at most 64 bytes\n"
    )


def test_what_xla_moves_is_beside(home: Path) -> None:
    """For CPU, and ahead of time for v5e where that can be done."""
    written(home, replaced(MODULE, (LINE, LINE + " + x.sum(0)")))
    out = run("plan", "--compare").out
    rows = [[cell.strip() for cell in line.split("│")[1:4]] for line in out.splitlines()]
    totals = {row[0]: row[1:] for row in rows if len(row) == 3}
    assert totals["as_shardy, as emitted"] == ["224", "1.000"]
    assert totals["cheapest: shardings by price"] == ["176", "0.786"]
    assert totals["jax.jit, CPU"] == ["224", "1.000"]
    assert totals["Shardy's passes"] == ["224", "1.000"]
    if find_spec("libtpu") is not None:
        assert int(totals["jax.jit, v5e:2x4 ahead of time"][0]) >= 224


@pytest.mark.slow
def test_the_page_has_what_others_move(home: Path) -> None:
    run("show", "--html", "page.html", "--compare")
    page = (home / "page.html").read_text()
    assert '{"name": "jax.jit, CPU", "received": 128, "why": ""}' in page
    assert '{"name": "Shardy\'s passes", "received": 128, "why": ""}' in page


def test_what_others_move_needs_a_page(home: Path) -> None:
    found = run("show", "--compare")
    assert found.code == 2
    assert found.err == (
        "error: --compare: there is no page to add the comparison to\n"
        "got: no page\nexpected: --html FILE, or plan --compare\n"
    )


@pytest.mark.slow
def test_why_xla_cannot_be_asked_is_said(home: Path) -> None:
    """Here the function raises where there are eight devices, as in the process that compiles."""
    given = replaced(
        MODULE, (LINE, f'(1 // (jax.local_device_count(backend="cpu") != 8)) * ({LINE})')
    )
    written(home, given)
    out = run("plan", "--compare").out
    (row,) = [line for line in out.splitlines() if line.startswith("│ jax.jit, CPU")]
    assert row.split("│")[2].strip() == "?"
    assert "jax.jit, CPU: " in out


def lockfile(*rows: tuple[str, int, str], times: int = 1) -> str:
    """A `plan.json` with these collectives over t: name, bytes, line."""
    listed = [
        {"op": op, "axes": ["t"], "shape": "f32[8]", "received": size, "times": times}
        | {"bytes": size * times, "line": line}
        for op, size, line in rows
    ]
    total = sum(size * times for _, size, _ in rows)
    return json.dumps({"bytes_received": total, "communications": listed})


def test_words() -> None:
    """One more among many, two alike, one less for another; places and lines do not count."""
    gather, reduce = ("all_gather", 3670016, "a.py:41"), ("all_reduce", 64, "a.py:7")
    many = (reduce, gather, reduce, reduce)
    assert changes(lockfile(*many), lockfile(*many[:2], gather, *many[2:])) == (
        "the busiest device receives 7 MiB, before 3.5 MiB",
        "one all-gather over t of 3.5 MiB more, a.py:41",
    )
    assert changes(lockfile(), lockfile(gather, gather, times=4)) == (
        "the busiest device receives 28 MiB, before 0 B",
        "2 all-gathers over t of 3.5 MiB each, 4 times more, a.py:41",
    )
    other = ("reduce_scatter", 64, "a.py:7")
    assert changes(lockfile(reduce, gather), lockfile(gather, other)) == (
        "one reduce-scatter over t of 64 B more, a.py:7",
        "one all-reduce over t of 64 B less, a.py:7",
    )
    assert changes(lockfile(reduce, gather), lockfile(gather, reduce)) == ()
    assert changes(lockfile(reduce), lockfile(("all_reduce", 64, "b.py:1"))) == ()
    for text in ("", "[]", "{}", '{"communications": [{}], "bytes_received": 1}'):
        assert changes(text, lockfile(reduce)) == ()
