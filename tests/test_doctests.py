"""The examples in docstrings, and in `docs/`."""

from __future__ import annotations

import doctest
import importlib

import pytest
from places import ROOT

MODULES = [
    ".".join(("shardwright", *path.relative_to(ROOT).with_suffix("").parts))
    for folder in ("ir", "codegen")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    module = importlib.import_module(name)
    assert doctest.testmod(module).failed == 0


def test_the_examples_of_programs() -> None:
    done = doctest.testfile(str(ROOT / "docs" / "programs.md"), module_relative=False)
    assert (done.failed, done.attempted) == (0, 37)


def test_there_are_examples() -> None:
    text = importlib.import_module("shardwright.ir.text.parse")
    assert doctest.testmod(text).attempted >= 3
