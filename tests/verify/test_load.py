"""The import of emitted modules by their paths."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from shardwright.codegen.verify.compare import MismatchError
from shardwright.codegen.verify.load import load


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


def test_support_modules_are_imported_once_for_each_of_their_texts(tmp_path: Path) -> None:
    """Two bundles have one of them in common, until it is written anew."""
    paths = [tmp_path / name / "module.py" for name in ("first", "second")]
    for path in paths:
        path.parent.mkdir()
        path.write_text("from .._support.texts import TEXT as TEXT\n")
    support = tmp_path / "_support"
    support.mkdir()
    (support / "__init__.py").write_text("")
    (support / "texts.py").write_text("TEXT = [1]\n")
    first, second = (load(path).TEXT for path in paths)
    assert first is second
    (support / "texts.py").write_text("TEXT = [2]\n")
    assert load(paths[0]).TEXT == [2]
    assert first == [1]


def test_a_module_of_a_bundle_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text("from .module_backward import reshard\n")
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'emitted_.*module_backward'"):
        load(path)


def test_a_missing_module_is_named(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    with pytest.raises(MismatchError) as caught:
        load(path)
    assert str(caught.value) == f"the module is missing: {path}"
