"""The versions of JAX, torch and Triton that `verify` and `compile` have been run with.

Both reach into interpreters and compilers. With another version a fault that they find may be one
of these packages, or of how they are used here, and not of a module; a worker that no longer finds
the faults planted in its own kernels says that it cannot verify.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version

from shardwright.codegen.backends import registry

CHECKED = {"jax": ("0.10.2", "0.12"), "torch": ("2.11", "2.13"), "triton": ("3.6", "3.9")}
"""The first and the last version of each package; `docs/versions.md` has the same."""


def note_versions(backends: Iterable[str]) -> None:
    """Print a line on standard error for each package of backends that `notes` is about."""
    packages = {name for each in {*backends} for name in registry.runtime(each).packages}
    for line in notes(packages):
        print(f"note: {line}", file=sys.stderr)


def notes(packages: Iterable[str]) -> Iterator[str]:
    """Yield a sentence for each installed package with a version outside `CHECKED`, and for a numpy
    that the installed triton's interpreter fails with.

    A package that is run from a folder has no metadata, and is passed over.
    """
    found = {name: _version(name) for name in sorted(packages)}
    for name, (first, last) in CHECKED.items():
        if found.get(name) and not _numbers(first) <= found[name] <= _beyond(last):
            yield (
                f"{name} {version(name)} is installed; "
                f"verify and compile have been run with {said(name)}"
            )
    if found.get("triton") and found["triton"] < (3, 7) and _version("numpy") >= (2, 4):
        yield (
            f"the interpreter of triton {version('triton')} fails with numpy "
            f"{version('numpy')}: pip install 'numpy<2.4'"
        )


def said(package: str) -> str:
    """Return the versions of a package in `CHECKED`: the first to the last."""
    return " to ".join(dict.fromkeys(CHECKED[package]))


def _version(package: str) -> tuple[int, ...]:
    """Return the numbers of an installed version, none where it is not known."""
    try:
        return _numbers(version(package).partition("+")[0])
    except PackageNotFoundError:
        return ()


def _beyond(last: str) -> tuple[int, ...]:
    """Return numbers that no version that begins with `last` is above."""
    return (*_numbers(last), sys.maxsize)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)))
