"""Emitted modules, imported by their paths."""

from __future__ import annotations

import importlib.util
import sys
from itertools import count
from pathlib import Path
from types import ModuleType

from shardwright.codegen.verify.compare import MismatchError

_numbers = count()


def load(path: Path) -> ModuleType:
    """Import a module by its path, in packages of its own that its folder and the one above are.

    Raises MismatchError for none.
    """
    if not path.is_file():
        raise MismatchError(f"the module is missing: {path}")
    root = f"emitted_{next(_numbers)}"
    home = f"{root}.{path.parent.name}"
    _package(root, path.parent.parent)
    _package(home, path.parent)
    name = f"{home}.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise MismatchError(f"{path} is not a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _package(name: str, folder: Path) -> None:
    """Let a folder be a package of this name, whatever is in it."""
    package = ModuleType(name)
    package.__path__ = [str(folder)]
    sys.modules[name] = package
