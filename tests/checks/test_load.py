"""The import of emitted modules by their paths."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from shardwright.codegen.checks.compare import MismatchError
from shardwright.codegen.checks.load import load


def test_a_module_emitted_anew_is_the_one_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of equal size, at the same time: what Python takes for the text that it has compiled."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "module.py"
    for number in (1, 2):
        path.write_text(f"NUMBER = {number}\n")
        os.utime(path, (1_000_000_000, 1_000_000_000))
        assert number == load(path).NUMBER


def test_a_missing_module_is_named(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    with pytest.raises(MismatchError) as caught:
        load(path)
    assert str(caught.value) == f"the module is missing: {path}"
