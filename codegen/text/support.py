"""Support modules: the shared code of a folder's emitted modules, written once per folder.

Support modules are the Python files in `templates/support/`, unchanged. A backend names the support
modules that its modules import, directly or indirectly. A module states the version with which it
was emitted; the package states its own version.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from shardwright.codegen import registry
from shardwright.codegen.text.templates import render

PACKAGE = "__init__"
"""The name of the package's `__init__` file."""

SHOWN = 16
"""The number of hexadecimal digits in a version."""


@dataclass(frozen=True)
class _SupportPackage:
    """The context of the package's template: pairs of a backend and its version."""

    versions: tuple[tuple[str, str], ...]


@cache
def text(name: str) -> str:
    """Return the text of a support module."""
    found: str = files("shardwright.templates").joinpath("support", f"{name}.py").read_text("utf-8")
    return found


def support_text(backends: Iterable[str], name: str) -> str:
    """Return the text of a file, named without suffix, in the support folder of these backends."""
    return package_text(backends) if name == PACKAGE else text(name)


def names(
    backend: str,
    *,
    resharded: bool = True,
    grouped: bool = False,
    multiplied: bool = False,
    modelled: bool = False,
) -> tuple[str, ...]:
    """Return the names of the support modules that a backend's modules import. `resharded`,
    `grouped`, `multiplied`, `modelled`: whether to include the modules for reshards, groups,
    matmuls and models."""
    found = registry.backend(backend)
    used = {*(found.support if resharded else ())}
    used.update(found.grouping.support if grouped else ())
    used.update(found.matmul_support if multiplied else ())
    used.update(found.model_support if modelled else ())
    return tuple(sorted(used))


@cache
def version(backend: str) -> str:
    """Return the version of a backend's support modules, which covers groups, matmuls and
    models."""
    said = "".join(
        f"{name}\n{text(name)}"
        for name in names(backend, grouped=True, multiplied=True, modelled=True)
    )
    return hashlib.sha256(said.encode()).hexdigest()[:SHOWN]


def versions(backends: Iterable[str]) -> dict[str, str]:
    """Return the version of the support modules of each backend that has support modules."""
    return {name: version(name) for name in sorted(set(backends)) if names(name)}


def package_text(backends: Iterable[str]) -> str:
    """Return the text of the package for the modules of these backends."""
    return render("common/support.py.jinja", _SupportPackage(tuple(versions(backends).items())))


def support_files(backends: Iterable[str], **kinds: bool) -> dict[str, str]:
    """Return the text of every file in the support folder of these backends, by file name; an
    empty dict if they use none. `kinds`: the keyword arguments of `names`."""
    used = versions(backends)
    if not used:
        return {}
    wanted = (names(backend, **kinds) for backend in used)
    modules = sorted({name for listed in wanted for name in listed})
    return {f"{name}.py": support_text(used, name) for name in (PACKAGE, *modules)}


def reading_order(module: str) -> tuple[str, ...]:
    """Return the names of the support modules that the text of a module imports, directly or
    indirectly, in breadth-first order."""
    found = dict.fromkeys(re.findall(r"^from \.\._support\.(\w+) import", module, re.MULTILINE))
    queue = [*found]
    for name in queue:  # grows during the loop
        for each in re.findall(r"^ *from \.(\w+) import", text(name), re.MULTILINE):
            if each not in found:
                found[each] = None
                queue.append(each)
    return tuple(queue)
