"""Requirements to run and compile the modules of a backend: packages, variables, targets.

Worker processes import this file, so it imports neither planning nor rendering.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

Variables = Mapping[str, str | None]
"""Environment variables; None for one that must not be set."""


@dataclass(frozen=True)
class Runtime:
    """What modules import, and the extra that installs it.

    `environment`: what must be set before that is imported, for the number of devices that modules
    are verified on, given what is set already.
    """

    packages: tuple[str, ...]
    extra: str
    environment: Callable[[int, Mapping[str, str]], dict[str, str]]


@dataclass(frozen=True)
class Compiler:
    """The compiler of a backend's modules, which needs no accelerator.

    `kind` is what its `targets` are, `example` one of them, and `looks_so` tells what was meant for
    one. `packages` and `saving` are what it imports, and what saving its results imports besides,
    both installed by `extra`. `environment`: what must be set before, given a folder for caches.
    `chips`: the target of chips that have names of their own. `is_xla`: it is XLA's, which takes
    portable modules, with 64-bit types and without, compiles its own reshard to compare with, and
    says what a program moves.
    """

    kind: str
    example: str
    targets: tuple[str, ...]
    looks_so: Callable[[str], bool]
    packages: tuple[str, ...]
    saving: tuple[str, ...]
    extra: str
    environment: Callable[[Path], Variables]
    is_xla: bool
    chips: Mapping[str, str] = field(default_factory=dict)


def host_devices(count: int, given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which JAX has host devices, for modules that run on `count` of
    them.

    One more device than any mesh has: with exactly as many, JAX's interpreter deadlocks on buffers
    over about 100 KB. At least two, between which faults are planted.
    """
    option = "--xla_force_host_platform_device_count"
    flags = [flag for flag in given.get("XLA_FLAGS", "").split() if not flag.startswith(option)]
    forced = f"{option}={max(count, 1) + 1}"
    return {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": " ".join([*flags, forced])}
