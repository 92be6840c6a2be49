"""Compilation targets of the backends' compilers, by name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec

from shardwright.codegen import registry
from shardwright.codegen.registry.toolchain import Compiler
from shardwright.ir.errors import InputError, install, one_of


@dataclass(frozen=True)
class Target:
    """A compilation target. `backend`: the backend whose kernels run on it."""

    name: str
    backend: str

    @property
    def stem(self) -> str:
        """The name for use in file names."""
        return self.name.replace(":", "_")

    @property
    def compiler(self) -> Compiler:
        return compilers()[self.backend]

    @property
    def takes(self) -> tuple[str, ...]:
        """The backends whose modules can be compiled for the target: first the one with kernels,
        then plain JAX."""
        plain = (each.name for each in registry.every() if each.portable)
        return (self.backend, *(plain if self.compiler.is_xla else ()))


def compilers() -> dict[str, Compiler]:
    return {each.name: each.compiler for each in registry.every() if each.compiler is not None}


def parse_targets(names: Iterable[str]) -> tuple[Target, ...]:
    """Return the targets with these names, without duplicates. Raises InputError, argument
    "targets", if there are no names or a name is unknown."""
    targets = tuple(dict.fromkeys(map(_target, names)))
    if not targets:
        kinds = (f"a {each.kind} such as {each.example}" for each in compilers().values())
        raise InputError(
            "at least one target is needed", argument="targets", expected=", or ".join(kinds)
        )
    return targets


def _target(name: str) -> Target:
    every = compilers()
    for backend, compiler in every.items():
        # A topology of GPUs, such as h100:2x8, is compiled for its GPU.
        architecture = compiler.chips.get(name.partition(":")[0].lower(), name)
        if architecture in compiler.targets:
            return Target(architecture, backend)
    meant = [each for each in every.values() if each.looks_so(name)] or list(every.values())
    raise InputError(
        f"no such {' or '.join(each.kind for each in meant)}",
        argument="targets",
        got=name,
        expected=one_of(target for each in meant for target in each.targets),
    )


def require(targets: Iterable[Target], saving: bool) -> None:
    """Raise InputError, with the installation command, if a compiler is missing."""
    for backend, compiler in compilers().items():
        wanted = [target.name for target in targets if target.backend == backend]
        modules = compiler.packages + (compiler.saving if saving else ())
        absent = [module for module in modules if find_spec(module) is None]
        if wanted and absent:
            verb = "is" if len(absent) == 1 else "are"
            raise InputError(
                f"{' and '.join(absent)} {verb} not installed",
                argument="targets",
                got=", ".join(wanted),
                expected=install(compiler.extra),
            )
