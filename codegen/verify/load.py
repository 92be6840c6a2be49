"""Emitted modules, imported by their paths."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from itertools import count
from pathlib import Path
from types import CodeType, ModuleType

from shardwright.codegen.spec.manifest import SUPPORT
from shardwright.codegen.verify.compare import MismatchError

_ROOT = "emitted_"
_numbers = count()


def load(path: Path) -> ModuleType:
    """Import a module by its path, in a package of its own that its folder is.

    The support modules beside that folder are imported once, as long as they read the same.
    Raises MismatchError for none.
    """
    if not path.is_file():
        raise MismatchError(f"the module is missing: {path}")
    home = f"{_around(path.parent.parent)}.{path.parent.name}_{next(_numbers)}"
    _package(home, path.parent)
    return import_module(f"{home}.{path.stem}")


def _around(folder: Path) -> str:
    """Return the name of the package that a folder of bundles is, one for each state of the
    support modules in it."""
    texts = sorted((folder / SUPPORT).glob("*.py"))
    digest = hashlib.sha256(b"\0".join(each.read_bytes() for each in texts))
    return _named(folder.resolve(), digest.digest())


@cache
def _named(folder: Path, state: bytes) -> str:
    """Return the name of a package that a folder is from now on; `state`: that of its files."""
    name = f"{_ROOT}{next(_numbers)}"
    _package(name, folder)
    return name


def _package(name: str, folder: Path) -> None:
    """Let a folder be a package of this name, whatever is in it."""
    package = ModuleType(name)
    package.__path__ = [str(folder)]
    sys.modules[name] = package


class _Uncached(SourceFileLoader):
    """A loader that compiles the text there is.

    Cached bytecode counts as current if size and time of a file agree to the second, which those
    of a module that was emitted anew can.
    """

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


class _Emitted:
    """Finds what the packages of this module hold, and what these import from each other."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how to import a module or package of ours, None for what is not."""
        if path is None or not name.startswith(_ROOT):
            return None
        place = Path(path[0]) / name.rpartition(".")[2]
        inside = [str(place)] if place.is_dir() else None
        file = place / "__init__.py" if inside else place.with_suffix(".py")
        if not file.is_file():
            return None
        loader = _Uncached(name, str(file))
        return spec_from_file_location(name, loader=loader, submodule_search_locations=inside)


sys.meta_path.insert(0, _Emitted)
