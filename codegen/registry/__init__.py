"""The only list of backends. To add a backend, add a folder, and a line here that states its uses.

Backends are loaded on demand. Descriptions and worker processes need only names and runtimes, and
load nothing that plans or renders.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from shardwright.ir.errors import unknown, wrong_type

if TYPE_CHECKING:
    from shardwright.codegen.backends.base import Backend, ProgramBackend
    from shardwright.codegen.registry.contracts import Contract
    from shardwright.codegen.registry.toolchain import Runtime


@dataclass(frozen=True)
class Duties:
    """The uses of a backend.

    `reshards`, `multiplies`, `models`: whether a module for this backend is emitted by default for
    reshards, matmuls and models; `overlaps`: whether programs may request its kernels; `features`:
    the features that its modules of reshards can have.
    """

    reshards: bool = False
    multiplies: bool = False
    models: bool = False
    overlaps: bool = False
    features: tuple[str, ...] = ()


DUTIES = {
    "pallas_tpu": Duties(reshards=True, overlaps=True, features=("gradient", "start", "vmap")),
    "triton_gpu": Duties(
        reshards=True,
        models=True,
        features=("async", "check_exchange", "dtensor", "gradient", "remembered", "symmetric"),
    ),
    "jax_xla": Duties(multiplies=True, models=True, features=("gradient", "vmap")),
}
NAMES = tuple(DUTIES)
DEFAULT_BACKENDS = tuple(name for name, duties in DUTIES.items() if duties.reshards)
MULTIPLYING = tuple(name for name, duties in DUTIES.items() if duties.multiplies)
MODELLING = tuple(name for name, duties in DUTIES.items() if duties.models)
OVERLAPPING = tuple(name for name, duties in DUTIES.items() if duties.overlaps)
_HOME = "shardwright.codegen.backends"
PROGRAMS = "jax_spmd"
"""The backend of programs. A program has a single module."""
PROGRAM_FILE = f"{PROGRAMS}.py"


@cache
def backend(name: str) -> Backend:
    """Return the backend with this name."""
    found: Backend = import_module(f"{_HOME}.{name}.backend").BACKEND
    return found


def program_backend() -> ProgramBackend:
    """Return the backend of programs."""
    found: ProgramBackend = import_module(f"{_HOME}.{PROGRAMS}.backend").BACKEND
    return found


def every() -> tuple[Backend, ...]:
    """Return all backends, in the order of NAMES."""
    return tuple(map(backend, NAMES))


def runtime(name: str) -> Runtime:
    """Return the packages and the environment that a backend's modules need to run."""
    found: Runtime = import_module(f"{_HOME}.{name}.runtime").RUNTIME
    return found


def contract(name: str) -> Contract:
    """Return the contract of a backend's modules: the names that they must have."""
    found: Contract = import_module(f"{_HOME}.{name}.contract").CONTRACT
    return found


def check_name(name: str) -> None:
    """Raise InputError for an unknown backend."""
    if name not in NAMES:
        raise unknown("no such backend", str(name), NAMES, "backends")


def listed(given: object) -> tuple[str, ...]:
    """Return a sequence of backend names as a tuple. Raises InputError for an unknown name, and for
    a single string."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        names = [name.strip() for name in given.split(",")] if isinstance(given, str) else [""]
        meant = tuple(names) if set(names) <= set(NAMES) else (NAMES[1],)
        raise wrong_type(given, tuple, str(meant).replace("'", '"'), "backends")
    names = list(given)
    for name in names:
        check_name(name)
    return tuple(names)
