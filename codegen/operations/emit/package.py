"""The `__init__.py` of each bundle, and of a folder of bundles, which makes the folder a
package."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shardwright.codegen import registry
from shardwright.codegen.text.templates import render

PACKAGE_FILE = "__init__.py"


@dataclass(frozen=True)
class RootPackage:
    """The context of a root's `__init__.py`: the names of bundles and groups, with their
    folders."""

    folders: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class BundlePackage:
    """The context of a bundle's `__init__.py`. `what`: the kind of bundle; `support`: whether
    modules need the support modules next to the folder; `backends`: the backends of its modules."""

    what: str
    support: bool
    backends: tuple[str, ...] = ()

    @property
    def others(self) -> str:
        """The backends that the bundle lacks, as a Python list, or "" if it has all backends or
        none."""
        return other_backends(self.backends) if self.backends else ""


def other_backends(backends: Iterable[str]) -> str:
    """Return the registered backends other than the given ones, as a Python list, or "" if all are
    given."""
    names = [f'"{name}"' for name in registry.NAMES if name not in {*backends}]
    return f"[{', '.join(names)}]" if names else ""


def package_text(modules: Mapping[str, str]) -> str:
    """Return the text of the `__init__.py` of a folder of bundles, given the folder of each
    name."""
    return render("common/root.py.jinja", RootPackage(tuple(sorted(modules.items()))))


def is_package(text: str) -> bool:
    """Return whether a text is the `__init__.py` of a folder of bundles, whatever bundles it
    names."""
    return text.partition("\n")[0] == package_text({}).partition("\n")[0]
