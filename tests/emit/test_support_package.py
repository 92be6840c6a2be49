"""The package of support modules in a process that imported it before a bundle was written."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardwright.codegen.checks.load import load
from shardwright.codegen.text.support import package_text, version


def test_a_backend_that_was_written_later_is_found(tmp_path: Path) -> None:
    """The process keeps the package as it was; the file names the new backend."""
    path = tmp_path / "support.py"
    path.write_text(package_text(["jax_xla"]))
    package = load(path)
    with pytest.raises(ImportError, match="found none: emit it again"):
        package.require("triton_gpu", version("triton_gpu"), "a.triton_gpu")
    path.write_text(package_text(["jax_xla", "triton_gpu"]))
    package.require("triton_gpu", version("triton_gpu"), "a.triton_gpu")
    with pytest.raises(ImportError, match=r"^a\.triton_gpu needs _support old, found"):
        package.require("triton_gpu", "old", "a.triton_gpu")
