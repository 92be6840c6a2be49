"""The examples in the docstrings of the algebra and the representation."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import shardwright.ir

MODULES = [module.name for module in pkgutil.iter_modules(shardwright.ir.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    module = importlib.import_module(f"shardwright.ir.{name}")
    assert doctest.testmod(module).failed == 0


def test_there_are_examples() -> None:
    text = importlib.import_module("shardwright.ir.text")
    assert doctest.testmod(text).attempted >= 3
