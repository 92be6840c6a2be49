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

from shardwright.codegen import registry
from shardwright.codegen.operations.emit.reshard import emit_described
from shardwright.codegen.spec.description import Description, describe
from shardwright.ir.once import Once

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
FILES = {"triton_gpu": 45, "pallas_tpu": 57}
"""From a description to a module, the templates too: more would be harder to follow."""
DERIVED = (
    ("moves/direct.py", "plan_direct"),
    ("ir/exchange.py", "of"),
    ("ir/transfers.py", "enumerate_transfers"),
    ("text/index_functions.py", "index_functions"),
    ("backends/int32.py", "widest_index"),
    ("pallas_tpu/strategy.py", "choices"),
    ("pallas_tpu/phases.py", "choice_of"),
    ("jax_xla/context.py", "how_of"),
)
STEPS = (
    ("basis/plan.py", "plan_basis"),
    ("jax_steps/axes.py", "of"),
    ("jax_steps/plan.py", "steps_of"),
    ("jax_steps/docstring.py", "step_facts"),
    ("text/index_functions.py", "box_functions"),
)


def described(**given: str | bool) -> Description:
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


def derived(given: Description, names: tuple[tuple[str, str], ...]) -> dict[tuple[str, str], int]:
    """How often a bundle is derived of what these functions make."""
    found = calls(lambda: emit_described(given).files("derived"))
    return {which: entered(found, *which) for which in names}


ALL = described(backends=",".join(registry.NAMES), gradient=True)
LAYOUTS = (("ir/layout.py", "of"),)


def test_each_is_derived_once_a_plan() -> None:
    """A bundle with gradients has two plans, of the reshard and of its reverse, and three modules
    of each."""
    once = dict.fromkeys(DERIVED, PLANS) | dict.fromkeys(LAYOUTS, 2 * PLANS)  # one a side
    assert derived(ALL, DERIVED + LAYOUTS) == once


def test_each_is_derived_once_a_plan_of_steps() -> None:
    given = described(backends="jax_xla", strategy="basis", topology="switch", gradient=True)
    assert derived(given, STEPS) == dict.fromkeys(STEPS, PLANS)


def test_what_is_derived_again_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Once, "once", lambda self, make: make(self))
    names = (("text/index_functions.py", "index_functions"), ("pallas_tpu/strategy.py", "choices"))
    assert all(count > PLANS for count in derived(ALL, names).values())


@pytest.mark.parametrize("backend", FILES)
def test_files_from_a_description_to_a_module(backend: str) -> None:
    given = described(backends=backend)
    emit_described(given).modules(given)  # compiles templates
    found = calls(lambda: emit_described(given).modules(given))
    files = sorted({file for file, _ in found})
    assert len(files) <= FILES[backend], files
