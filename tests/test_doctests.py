"""The examples in the docstrings of the algebra and the representation, and in `docs/`."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest
from places import ROOT

import shardwright.ir

MODULES = [m.name for m in pkgutil.walk_packages(shardwright.ir.__path__, "shardwright.ir.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    module = importlib.import_module(name)
    assert doctest.testmod(module).failed == 0


def test_the_examples_of_programs() -> None:
    done = doctest.testfile(str(ROOT / "docs" / "programs.md"), module_relative=False)
    assert (done.failed, done.attempted) == (0, 33)


def test_there_are_examples() -> None:
    text = importlib.import_module("shardwright.ir.text.parse")
    assert doctest.testmod(text).attempted >= 3
