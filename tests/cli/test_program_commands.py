"""Programs in a config: emitted, planned, checked and verified."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from a_program import MODULE, TABLE, forgotten, replaced, written
from commands import run


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a function and a config; the function is imported anew."""
    written(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    forgotten()


def edited(home: Path, old: str, new: str) -> None:
    """Change the user's function, which is imported anew."""
    written(home, replaced(MODULE, (old, new)))


def test_a_program_is_emitted_and_checked(home: Path) -> None:
    assert run("emit").code == 0
    assert run("check").code == 0
    plan = json.loads((home / "generated/mlp/plan.json").read_text())
    (found,) = plan["communications"]
    assert (found["op"], found["axes"], found["bytes"], found["line"]) == (
        "all_reduce",
        ["t"],
        128,
        "a_step.py:5",
    )
    assert run("plan", "--json").out == (home / "generated/mlp/plan.json").read_text()
    assert "[C1] all-reduce over t, 128 B: dot_general sums over" in run("plan").out


def test_check_shows_what_a_change_communicates(home: Path) -> None:
    run("emit")
    edited(home, 'jnp.tanh(x @ p["w1"]) @ p["w2"]', 'jnp.tanh(x @ p["w1"]) @ p["w2"] + x.sum(0)')
    found = run("check")
    assert found.code == 1
    assert '+    {"number": 2, "op": "all_reduce", "axes": ["d"], "value": "reduce_sum"' in (
        found.out
    )


def test_mistakes_are_located(home: Path) -> None:
    config = home / "shardwright.toml"
    config.write_text(TABLE.replace("1KiB", "64B"))
    said = run("emit")
    assert said.code == 2
    assert "line 7, program 'mlp', budget: the program receives more than its budget" in said.err
    assert "got: 128 bytes, the most in [C1] all-reduce over t" in said.err
    config.write_text(TABLE.replace("a_step:step", "a_step:stop"))
    said = run("emit")
    assert "line 4, program 'mlp', function: the object cannot be imported" in said.err
    config.write_text(TABLE.replace('function = "a_step:step"', 'function = "step"'))
    assert "must be the name of an object in a module" in run("emit").err
    assert not (home / "generated").exists()


def test_verify_runs_the_module_beside_one_device(home: Path) -> None:
    run("emit")
    done = run("verify")
    assert done.code == 0
    assert "ok" in done.out
    module = home / "generated/mlp/jax_spmd.py"
    text = module.read_text()
    planted = text.replace('lax.psum(out, "t")', "out * 1")
    module.write_text(planted.replace("check_vma=True", "check_vma=False"))
    assert planted != text
    done = run("verify")
    assert done.code == 1
    assert "off by" in done.out
    module.write_text(text)
    plan = module.with_name("plan.json")
    plan.write_text(plan.read_text().replace('"bytes": 128', '"bytes": 129'))
    done = run("verify")
    assert done.code == 1
    assert "129 bytes" in " ".join(done.out.split())


def test_memory_and_gathering_are_said_in_the_table(home: Path) -> None:
    config = home / "shardwright.toml"
    config.write_text(f'{TABLE}gather = "regather"\nmemory_limit = "1MiB"\n')
    assert run("emit").code == 0
    listing = json.loads((home / "generated/manifest.json").read_text())
    assert '"gather": "regather"' in json.dumps(listing)
    assert '"memory_limit": 1048576' in json.dumps(listing)
    assert run("check").code == 0
    config.write_text(f'{TABLE}memory_limit = "1KiB"\n')
    done = run("plan")
    assert done.code == 2
    assert "memory_limit" in done.err
    config.write_text(f'{TABLE}gather = "never"\nmemory_limit = "much"\n')
    done = run("plan")
    assert done.code == 2
    assert "got: never\nexpected: one of keep, regather" in done.err
    config.write_text(f'{TABLE}memory_limit = "much"\n')
    assert "a memory limit must be a number of bytes\n" in run("plan").err
