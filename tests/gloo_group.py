"""Groups of processes over gloo, forked by a worker that stays (`gloo_rank.py`)."""

from __future__ import annotations

import atexit
import json
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from places import TESTS

from shardwright.codegen.checks.matmul_case import MatmulCase
from shardwright.codegen.checks.workers.worker import Worker

TIME_LIMIT = 300.0


@cache
def _worker(interpreted: bool) -> Worker:
    """The worker that forks processes, with Triton's interpreter or without, until tests end."""
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {"PYTHONPATH": path, "TRITON_INTERPRET": str(int(interpreted))}
    made = Worker("gloo_rank", environment=environment)
    atexit.register(made.stop)
    return made


def run_group(
    world: int, cases: list[dict[str, Any]], folder: Path, *, interpreted: bool = False
) -> list[list[dict[str, Any]]]:
    """What every rank reported, a line a case."""
    home = ended(world, cases, folder, interpreted=interpreted)
    lines = [(home / f"{rank}.jsonl").read_text().splitlines() for rank in range(world)]
    return [[json.loads(line) for line in each] for each in lines]


def ended(
    world: int, cases: list[dict[str, Any]], folder: Path, *, interpreted: bool = False
) -> Path:
    """Run processes to their end; return the folder with what they wrote."""
    home = Path(tempfile.mkdtemp(dir=folder))
    asked = {"world": world, "folder": str(home), "cases": cases}
    answer = _worker(interpreted).ask(json.dumps(asked), TIME_LIMIT)
    assert not answer["failed"], (home / "said").read_text()[-3000:]
    return home


def printed(code: str, words: list[str], folder: Path, *, interpreted: bool = True) -> str:
    """What a script prints, in a process of its own that stands in the folder."""
    case = {"task": "script", "code": code, "words": words, "folder": str(folder)}
    (lines,) = run_group(1, [case], folder, interpreted=interpreted)
    return str(lines[0]["printed"])


def multiplied(
    cases: list[MatmulCase], processes: int, folder: Path, polls: int = 1_000_000_000
) -> list[list[str]]:
    """What every process says of every matmul."""
    asked = [
        {"task": "gloo_matmul:multiplied", "case": json.loads(case.to_json()), "polls": polls}
        for case in cases
    ]
    ranks = run_group(processes, asked, folder, interpreted=True)
    return [[line["said"] for line in lines] for lines in ranks]


def verified(case: MatmulCase, folder: Path) -> tuple[str, str]:
    """The verdict on a module, and why, in a process of its own: after a fault its state is
    unknown, and a worker would have to start anew."""
    asked = {"task": "verified", "case": json.loads(case.to_json()), "module": str(case.module)}
    ((found,),) = run_group(1, [asked], folder, interpreted=True)
    return found["verdict"], found["detail"]
