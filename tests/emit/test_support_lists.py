"""A backend lists every support file that its modules import, directly or not."""

from __future__ import annotations

import ast

import pytest

from shardwright.codegen import registry
from shardwright.codegen.text.support import names, text


@pytest.mark.parametrize("extra", ["", "grouped", "multiplied", "modelled"])
@pytest.mark.parametrize("backend", registry.NAMES)
def test_no_listed_file_imports_one_that_is_not_listed(backend: str, extra: str) -> None:
    listed = {*names(backend, **({extra: True} if extra else {}))}
    assert {each: [*_lacking(each, listed)] for each in listed if _lacking(each, listed)} == {}


def _lacking(name: str, listed: set[str]) -> list[str]:
    """Return the sibling files that a support file imports and a list lacks."""
    nodes = ast.walk(ast.parse(text(name)))
    sibling = (each.module for each in nodes if isinstance(each, ast.ImportFrom) and each.level)
    return [each for each in sibling if each and each not in listed]
