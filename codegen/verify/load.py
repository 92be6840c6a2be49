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
    """Import a module by its path, under a name of its own. Raises MismatchError for none."""
    if not path.is_file():
        raise MismatchError(f"the module is missing: {path}")
    name = f"emitted_{next(_numbers)}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise MismatchError(f"{path} is not a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
