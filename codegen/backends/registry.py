"""The backends: the only list of their names. A new one is a folder and a line here.

A backend is loaded when it is asked for. Descriptions and worker processes, which know of names and
of what runs modules only, load nothing that plans or renders.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from shardwright.ir.errors import unknown, wrong_type

if TYPE_CHECKING:
    from shardwright.codegen.backends.base import Backend
    from shardwright.codegen.backends.contract import Contract
    from shardwright.codegen.backends.toolchain import Runtime

NAMES = (
    "pallas_tpu",
    "triton_gpu",
    "jax_xla",
)
DEFAULT_BACKENDS = NAMES[:2]
MULTIPLYING = NAMES[2:]
"""Those that a matmul has modules of by default."""
OVERLAPPING = NAMES[:1]
"""Those whose kernels programs may have."""


@cache
def backend(name: str) -> Backend:
    """Return the backend of a name."""
    found: Backend = import_module(f"{__package__}.{name}.backend").BACKEND
    return found


def every() -> tuple[Backend, ...]:
    """Return all backends, in order."""
    return tuple(map(backend, NAMES))


def runtime(name: str) -> Runtime:
    """Return what running the modules of a backend takes."""
    found: Runtime = import_module(f"{__package__}.{name}.runtime").RUNTIME
    return found


def contract(name: str) -> Contract:
    """Return what the modules of a backend must have."""
    found: Contract = import_module(f"{__package__}.{name}.contract").CONTRACT
    return found


def check_name(name: str) -> None:
    """Raise InputError for what is no backend's name."""
    if name not in NAMES:
        raise unknown("no such backend", str(name), NAMES, "backends")


def listed(given: object) -> tuple[str, ...]:
    """Return names of backends from a sequence of them. Raises InputError for what is none, a text
    too."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        names = [name.strip() for name in given.split(",")] if isinstance(given, str) else [""]
        meant = tuple(names) if set(names) <= set(NAMES) else (NAMES[1],)
        raise wrong_type(given, tuple, str(meant).replace("'", '"'), "backends")
    names = list(given)
    for name in names:
        check_name(name)
    return tuple(names)
