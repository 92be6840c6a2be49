"""What the modules of a backend need to be run and compiled: packages, environment variables,
targets.

Worker processes import this file, so it imports neither planning nor rendering.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

Variables = Mapping[str, str | None]
"""Environment variables; None for a variable that must not be set."""


@dataclass(frozen=True)
class Runtime:
    """The packages that a backend's modules import, and the extra that installs them.

    `environment`: returns the variables to set before the import, from the number of devices to
    verify on and the current environment.
    """

    packages: tuple[str, ...]
    extra: str
    environment: Callable[[int, Mapping[str, str]], dict[str, str]]


@dataclass(frozen=True)
class Compiler:
    """The compiler of a backend's modules, which needs no accelerator.

    `kind`: a noun phrase for its `targets`; `example`: one target; `looks_so`: returns whether a
    string looks like a target. `packages`: the packages that it imports; `saving`: additional
    packages for saving results; `extra`: the extra that installs all of them. `environment`:
    returns the variables to set before compiling, from the path of a cache folder. `chips`: the
    target for each chip name. `is_xla`: whether it is XLA, which also compiles portable modules
    (with and without 64-bit types), compiles XLA's own reshard for comparison, and reports a
    program's communication.
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
    """Return environment variables that give JAX enough CPU devices for modules of `count` devices.

    They add one device to `count`: without it, JAX's interpreter deadlocks on buffers over about
    100 KB. There are at least two devices, because planted faults need two.
    """
    option = "--xla_force_host_platform_device_count"
    flags = [flag for flag in given.get("XLA_FLAGS", "").split() if not flag.startswith(option)]
    forced = f"{option}={max(count, 1) + 1}"
    return {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": " ".join([*flags, forced])}
