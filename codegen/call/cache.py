"""The cache of `sw.reshard`: one folder per description, emitted once.

The folder's name is a hash of the description and of the emitter, so its contents are never out of
date. Another version of Shardwright uses other folders.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

from shardwright.codegen.operations.emit.reshard import Bundle
from shardwright.codegen.spec.manifest import Manifest, read_manifest, sha256
from shardwright.ir.errors import InputError

VARIABLE = "SHARDWRIGHT_CACHE"
NAME = "reshard"
"""The name of the bundle in each folder."""
_PACKAGES = ("shardwright", "shardwright.ir", "shardwright.codegen", "shardwright.templates")


def load(bundle: Bundle, backend: str) -> ModuleType:
    """Return the module of a bundle, and emit it into the cache if necessary.

    An intact folder is only read. Otherwise one process writes the folder again while concurrent
    processes wait for it. Raises InputError if the cache lacks the module and cannot be written.
    """
    root = root_of(bundle)
    if not _is_whole(root):
        with _locked(root):
            if not _is_whole(root):
                _write(bundle, root)
    return _imported(root, backend)


def _write(bundle: Bundle, root: Path) -> None:
    try:
        if root.exists():
            shutil.rmtree(root)
        bundle.write(root / NAME)
    except InputError as error:
        raise _unwritable(root.parent, error.rule) from None
    except OSError as error:
        raise _unwritable(root.parent, error.strerror) from None


def root_of(bundle: Bundle) -> Path:
    """Return the folder for a bundle. It may not exist yet."""
    said = json.dumps(bundle.description(NAME).to_dict(), sort_keys=True)
    key = hashlib.sha256(f"{emitter()}\n{said}".encode()).hexdigest()[:20]
    return folder() / f"reshard_{key}"


def folder() -> Path:
    """Return the cache folder: `SHARDWRIGHT_CACHE`, or else `shardwright` in the user's cache
    folder."""
    given = os.environ.get(VARIABLE)
    if given:
        return Path(os.path.abspath(os.path.expanduser(given)))
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(caches) / "shardwright"


@functools.cache
def emitter() -> str:
    """Return a hash of the files of Shardwright, which determine what is emitted."""
    digest = hashlib.sha256()
    for package in _PACKAGES:
        top = Path(str(files(package)))
        for path in sorted(p for p in top.rglob("*") if p.suffix in (".py", ".jinja", ".lark")):
            digest.update(f"{package}/{path.relative_to(top)}\n".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


@contextlib.contextmanager
def _locked(root: Path) -> Iterator[None]:
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(root.parent / f".{root.name}.lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise _unwritable(root.parent, error.strerror) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _unwritable(path: Path, why: str | None) -> InputError:
    return InputError(
        f"the cache folder for emitted modules cannot be written: {why}",
        argument=VARIABLE,
        got=str(path),
        expected="a folder that can be created and written",
    )


def _is_whole(root: Path) -> bool:
    try:
        manifest = read_manifest(root)
        return bool(manifest.entries) and all(
            sha256((root / path).read_text("utf-8")) == recorded
            for path, recorded in _recorded(manifest)
        )
    except (InputError, OSError, UnicodeDecodeError):
        return False


def _recorded(manifest: Manifest) -> Iterator[tuple[str, str]]:
    yield from manifest.package
    yield from ((f"_support/{name}", recorded) for name, recorded in manifest.support.hashes)
    for entry in manifest.entries:
        yield from ((f"{NAME}/{name}", recorded) for name, recorded in entry.hashes)


def _imported(root: Path, backend: str) -> ModuleType:
    """Import a backend's module from a folder, as part of a package named after the folder, without
    changing `sys.path`."""
    package = root.name
    if package not in sys.modules:
        places: dict[str, Any] = {"submodule_search_locations": [str(root)]}
        spec = importlib.util.spec_from_file_location(package, root / "__init__.py", **places)
        assert isinstance(spec, ModuleSpec)
        assert spec.loader is not None
        made = importlib.util.module_from_spec(spec)
        sys.modules[package] = made
        spec.loader.exec_module(made)
    return importlib.import_module(f"{package}.{NAME}.{backend}")
