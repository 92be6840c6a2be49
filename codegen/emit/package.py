"""The package that a folder of bundles is: every name with its folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardwright.codegen.emit.templates import render

PACKAGE_FILE = "__init__.py"


@dataclass(frozen=True)
class RootPackage:
    """What the template prints: names with their folders."""

    folders: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class BundlePackage:
    """What the template of a bundle's `__init__.py` prints; `what` it is of; `support`: whether
    modules need the support modules beside the folder."""

    what: str
    support: bool


def package_text(modules: Mapping[str, str]) -> str:
    """Return the text of the package, from the folder of every reshard and group by name."""
    return render("common/root.py.jinja", RootPackage(tuple(sorted(modules.items()))))


def is_package(text: str) -> bool:
    """Return whether a text is that of such a package, of whatever names."""
    return text.partition("\n")[0] == package_text({}).partition("\n")[0]
