"""The package made of a folder of bundles: every name with its folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shardwright.codegen import registry
from shardwright.codegen.text.templates import render

PACKAGE_FILE = "__init__.py"


@dataclass(frozen=True)
class RootPackage:
    """The template's names with their folders."""

    folders: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class BundlePackage:
    """Text for a bundle's `__init__.py`; `what`: the kind of bundle; `support`: whether modules
    need the support modules next to the folder; `backends`: those of its modules."""

    what: str
    support: bool
    backends: tuple[str, ...] = ()

    @property
    def others(self) -> str:
        """The other backends as a Python list; "" if a bundle has none."""
        return other_backends(self.backends) if self.backends else ""


def other_backends(backends: Iterable[str]) -> str:
    """Return the other backends as a Python list; "" for none."""
    names = [f'"{name}"' for name in registry.NAMES if name not in {*backends}]
    return f"[{', '.join(names)}]" if names else ""


def package_text(modules: Mapping[str, str]) -> str:
    """Return the text of the package, given the folder of every reshard and group by name."""
    return render("common/root.py.jinja", RootPackage(tuple(sorted(modules.items()))))


def is_package(text: str) -> bool:
    """Return whether this is the text of such a package, with any names."""
    return text.partition("\n")[0] == package_text({}).partition("\n")[0]
