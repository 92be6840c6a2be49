"""The versions of JAX, torch and Triton on which `verify` and `compile` were tested.

Both use internals of interpreters and compilers. With another version, the cause of a reported
fault may be in those packages, or in how Shardwright uses them, and not in a module. A worker that
no longer finds the faults planted in its own kernels reports that it cannot verify.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version

from shardwright.codegen import registry

CHECKED = {"jax": ("0.10.2", "0.12"), "torch": ("2.11", "2.13"), "triton": ("3.6", "3.9")}
"""The first and last checked version of each package; `docs/versions.md` lists the same."""


def note_versions(backends: Iterable[str]) -> None:
    """Print each note about the packages of these backends on standard error."""
    packages = {name for each in {*backends} for name in registry.runtime(each).packages}
    for line in notes(packages):
        print(f"note: {line}", file=sys.stderr)


def notes(packages: Iterable[str]) -> Iterator[str]:
    """Yield a sentence for each installed package whose version is not in `CHECKED`, and for a
    numpy that breaks the interpreter of the installed triton.

    A package that runs from a source folder has no metadata and is skipped.
    """
    found = {name: _version(name) for name in sorted(packages)}
    for name, (first, last) in CHECKED.items():
        if found.get(name) and not _numbers(first) <= found[name] <= _beyond(last):
            yield (
                f"{name} {version(name)} is installed; "
                f"verify and compile were tested with {said(name)}"
            )
    if found.get("triton") and found["triton"] < (3, 7) and _version("numpy") >= (2, 4):
        yield (
            f"the interpreter of triton {version('triton')} fails with numpy "
            f"{version('numpy')}: pip install 'numpy<2.4'"
        )


def said(package: str) -> str:
    """Return the tested range of a package's versions, in words."""
    return " to ".join(dict.fromkeys(CHECKED[package]))


def _version(package: str) -> tuple[int, ...]:
    """Return the version numbers of an installed package, or () if unknown."""
    try:
        return _numbers(version(package).partition("+")[0])
    except PackageNotFoundError:
        return ()


def _beyond(last: str) -> tuple[int, ...]:
    """Return a tuple that is greater than every version that begins with `last`."""
    return (*_numbers(last), sys.maxsize)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)))
