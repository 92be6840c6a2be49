"""Import emitted modules by path."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from itertools import count
from pathlib import Path
from types import CodeType, ModuleType

from shardwright.codegen.checks.compare import MismatchError

_numbers = count()


class _Uncached(SourceFileLoader):
    """A loader that always compiles the current text.

    Python considers cached bytecode current if the file's size and its modification time in whole
    seconds are unchanged. Both can be unchanged for a module that is emitted again within a second.
    """

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def load(path: Path) -> ModuleType:
    """Import a module by path, in fresh packages for its folder and the folder above.

    Raises MismatchError if the module is missing.
    """
    if not path.is_file():
        raise MismatchError(f"the module is missing: {path}")
    root = f"emitted_{next(_numbers)}"
    home = f"{root}.{path.parent.name}"
    _package(root, path.parent.parent)
    _package(home, path.parent)
    name = f"{home}.{path.stem}"
    loader = _Uncached(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None  # never None, because the spec was made with a loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    loader.exec_module(module)
    return module


def _package(name: str, folder: Path) -> None:
    package = ModuleType(name)
    package.__path__ = [str(folder)]
    sys.modules[name] = package
