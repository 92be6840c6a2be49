"""What modules, pages and pictures derive of a plan is derived once, from few files."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FrameType

import pytest
from places import ROOT

from shardwright.codegen.backends import registry
from shardwright.codegen.emit.emit import emit_described
from shardwright.codegen.spec.description import Description, describe

GIVEN = {
    "name": "derived",
    "mesh": "x=2,y=3",
    "shape": "60x77",
    "dtype": "float32",
    "source": '[{"x"}, {"y"}]',
    "target": '[{"y"}, {"x"}]',
}
ROOMS = tuple(ROOT / name for name in ("codegen", "ir", "templates"))
PLANS = 2
FILES = {"triton_gpu": 43, "pallas_tpu": 53}
"""From a description to a module, the templates too: more would be harder to follow."""
DERIVED = (
    ("planner/direct.py", "plan_direct"),
    ("ir/exchange.py", "of"),
    ("ir/transfers.py", "enumerate_transfers"),
    ("emit/index_functions.py", "index_functions"),
    ("emit/docstring.py", "facts"),
    ("backends/int32.py", "widest_index"),
    ("pallas_tpu/strategy.py", "choices"),
    ("pallas_tpu/context.py", "choice_of"),
    ("jax_xla/context.py", "how_of"),
)


def described(**given: str) -> Description:
    return describe({**GIVEN, **given})


@cache
def in_rooms(path: str) -> str:
    """A file of the project relative to its root; the empty string for any other."""
    file = Path(path).resolve()
    return str(file.relative_to(ROOT)) if any(map(file.is_relative_to, ROOMS)) else ""


def calls(run: Callable[[], object]) -> Counter[tuple[str, str]]:
    """How often functions of the project, and templates, are entered: by file and name."""
    found: Counter[tuple[str, str]] = Counter()

    def enter(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and (file := in_rooms(frame.f_code.co_filename)):
            found[file, frame.f_code.co_name] += 1

    sys.setprofile(enter)
    try:
        run()
    finally:
        sys.setprofile(None)
    return found


def entered(found: Counter[tuple[str, str]], end: str, name: str) -> int:
    """How often a function of the file that ends so is entered."""
    return sum(
        count for (file, each), count in found.items() if file.endswith(end) and each == name
    )


def test_each_is_derived_once_a_plan() -> None:
    """A bundle has two plans, of the reshard and of its reverse, and three modules of each."""
    given = described(backends=",".join(registry.NAMES))
    found = calls(lambda: emit_described(given).files("derived"))
    got = {which: entered(found, *which) for which in DERIVED}
    assert got == dict.fromkeys(DERIVED, PLANS)
    assert entered(found, "ir/layout.py", "of") == 2 * PLANS  # one a side


@pytest.mark.parametrize("backend", FILES)
def test_files_from_a_description_to_a_module(backend: str) -> None:
    given = described(backends=backend)
    emit_described(given).modules("")  # compiles templates
    found = calls(lambda: emit_described(given).modules(""))
    files = sorted({file for file, _ in found})
    assert len(files) <= FILES[backend], files
