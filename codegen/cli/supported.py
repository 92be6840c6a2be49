"""Installed versions outside the bounds of the extras, which `verify` and `compile` note.

With such a version a fault that they find may be one of JAX, torch or Triton, or of how these are
used here, and not of a module.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from shardwright.codegen.backends import registry

OWN = "shardwright"


def note_versions(backends: Iterable[str]) -> None:
    """Print a line on standard error for each package of backends whose version is outside."""
    packages = {name for each in {*backends} for name in registry.runtime(each).packages}
    for line in outside(packages):
        print(f"note: {line}", file=sys.stderr)


def outside(packages: Iterable[str]) -> Iterator[str]:
    """Yield what is wrong with the installed version of each package.

    A package that is run from a folder has no metadata, and is passed over; so may this one be.
    """
    for package in sorted(packages):
        try:
            found, bounds = version(package), _bounds(package)
        except PackageNotFoundError:
            continue
        if not all(_within(found, sign, bound) for sign, bound in bounds):
            supported = ", ".join(f"{sign} {bound}" for sign, bound in bounds)
            yield f"{package} {found} is installed, this version supports {supported}"


def _bounds(package: str) -> list[tuple[str, str]]:
    """Return the bounds of a package in the extras, the lower one first."""
    for need in requires(OWN) or ():
        name, said = re.findall(r"^([\w.-]+)(?:\[[^]]*\])?([^;]*)", need)[0]
        if name == package:
            found: list[tuple[str, str]] = re.findall(r"(>=|<)\s*([\d.]+)", said)
            return sorted(found, reverse=True)
    return []


def _within(found: str, sign: str, bound: str) -> bool:
    own, end = (_numbers(text) for text in (found.partition("+")[0], bound))
    return own >= end if sign == ">=" else own < end


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)))
