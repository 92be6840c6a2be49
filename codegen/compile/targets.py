"""What can be compiled for: TPU topologies and GPU architectures, by the names users give."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec

from shardwright.codegen.hardware.chips import TOPOLOGIES
from shardwright.ir.errors import InputError, one_of

ARCHITECTURES = ("sm_80", "sm_90", "sm_100", "gfx942", "gfx950")
"""GPU architectures: NVIDIA's `sm_` names and AMD's `gfx` names."""

REQUIRES: dict[str, tuple[tuple[str, ...], str]] = {
    "pallas_tpu": (("jax", "libtpu"), "tpu"),
    "triton_gpu": (("triton", "torch"), "gpu"),
}
"""For each backend what compiling its modules imports, and the extra that installs it."""

SAVING: dict[str, tuple[str, ...]] = {"pallas_tpu": ("flatbuffers",), "triton_gpu": ()}
"""For each backend what saving imports beside that, with the same extra."""


@dataclass(frozen=True)
class Target:
    """One of TOPOLOGIES or ARCHITECTURES."""

    name: str

    @property
    def backend(self) -> str:
        """The backend whose modules run there."""
        return "pallas_tpu" if self.name in TOPOLOGIES else "triton_gpu"

    @property
    def stem(self) -> str:
        """The name as file names have it."""
        return self.name.replace(":", "_")


def parse_targets(names: Iterable[str]) -> tuple[Target, ...]:
    """The targets of these names, each once. Raises InputError, argument "targets", for none and
    for a name that does not exist; it lists those that do."""
    targets = tuple(dict.fromkeys(map(_target, names)))
    if not targets:
        raise InputError(
            "there is nothing to compile for",
            argument="targets",
            expected="a TPU topology such as v5e:2x4, or a GPU architecture such as sm_90",
        )
    return targets


def _target(name: str) -> Target:
    if name in TOPOLOGIES or name in ARCHITECTURES:
        return Target(name)
    if ":" in name:
        rule, known = "no such TPU topology", TOPOLOGIES
    elif name.startswith(("sm", "gfx")):
        rule, known = "no such GPU architecture", ARCHITECTURES
    else:
        rule, known = "no such TPU topology or GPU architecture", (*TOPOLOGIES, *ARCHITECTURES)
    raise InputError(rule, argument="targets", got=name, expected=one_of(known))


def require(targets: Iterable[Target], saving: bool) -> None:
    """Raises InputError, which says how to install it, where a compiler is not installed."""
    for backend in dict.fromkeys(target.backend for target in targets):
        modules, extra = REQUIRES[backend]
        if saving:
            modules += SAVING[backend]
        absent = [module for module in modules if find_spec(module) is None]
        if absent:
            verb = "is" if len(absent) == 1 else "are"
            raise InputError(
                f"{' and '.join(absent)} {verb} not installed",
                argument="targets",
                got=", ".join(t.name for t in targets if t.backend == backend),
                expected=f"pip install 'shardwright[{extra}]'",
            )
