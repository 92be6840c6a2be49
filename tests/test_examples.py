"""The examples do what they say: the commands in the docstring of each, in a copy of the folder."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from places import ROOT, TESTS
from sweeps import sampled

EXAMPLES = ROOT / "examples"
FOLDERS = (".", "checkpoint", "models", "strategies", "weights")
SCRIPTS = sorted(
    str(path.relative_to(EXAMPLES)) for name in FOLDERS for path in (EXAMPLES / name).glob("*.py")
)
PROVED = re.compile("right|restored|arrived")
"""What an example prints last, after its own assertions."""

NEEDED = {"torchrun": "torch", "python": "jax"}
PROGRAMS = {
    "python": [sys.executable],
    "shardwright": [sys.executable, "-m", "shardwright"],
    "torchrun": [sys.executable, "-m", "torch.distributed.run", "--standalone"],
}


def commands(script: Path) -> list[list[str]]:
    """The commands that the docstring of a script gives, in order."""
    text = ast.get_docstring(ast.parse(script.read_text())) or ""
    found = re.findall(rf"^    ((?:{'|'.join(PROGRAMS)}) .*)$", text, re.MULTILINE)
    return [shlex.split(line) for line in found]


def run(words: list[str], folder: Path) -> str:
    """What a command prints in a folder."""
    if words[0] == "torchrun":
        script = next(n for n, word in enumerate(words) if word.endswith(".py"))
        words = [*words[:script], str(TESTS / "leave_at_once.py"), *words[script:]]
    env = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
    done = subprocess.run(
        [*PROGRAMS[words[0]], *words[1:]], cwd=folder, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def scripts() -> list[Any]:
    """Them all; the longest are for the long sweep: of many processes that load torch, and of a
    layer in every strategy."""
    long = {
        "torch_reshard.py",
        "micro_batches.py",
        "checkpoint/restore.py",
        *(f"{name}/sync_{kind}.py" for name in ("models", "weights") for kind in ("jax", "torch")),
    }
    long |= {f"strategies/{name}.py" for name in ("layer", "network")}
    return sampled(SCRIPTS, *(name for name in SCRIPTS if name not in long))


@pytest.mark.parametrize("name", scripts())
def test_it_runs_as_its_docstring_says(name: str, tmp_path: Path) -> None:
    said = commands(EXAMPLES / name)
    assert any(f"examples/{name}" in words for words in said)
    for words in said:
        if words[0] in NEEDED:
            pytest.importorskip(NEEDED[words[0]])
    kept = shutil.ignore_patterns("kernels", "emitted", "disjoint", "overlapping", "__pycache__")
    shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=kept)
    for words in said:
        printed = run(words, tmp_path)
        assert words[0] == "shardwright" or PROVED.search(printed)


def test_the_list_names_them_all() -> None:
    page = (ROOT / "docs" / "examples.md").read_text()
    listed = re.findall(r'^--8<-- "examples/(.*\.py)"$', page, re.MULTILINE)
    assert sorted(listed) == SCRIPTS
