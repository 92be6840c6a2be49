"""A case of the fuzz: a reshard, the backend that is emitted for it, and how its module is used."""

from __future__ import annotations

import math
import re
import shlex
from dataclasses import dataclass

BACKENDS = ("pallas_tpu", "triton_gpu", "jax_xla")
ITEMSIZES = {
    "bool": 1, "int8": 1, "uint8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2,
    "int32": 4, "uint32": 4, "float32": 4, "int64": 8, "float64": 8,
}  # fmt: skip


@dataclass(frozen=True)
class Side:
    """One side of a reshard: its mesh as data, its sharding as text."""

    axes: tuple[tuple[str, int], ...]  # major to minor
    device_ids: tuple[int, ...]  # by flat position
    sharding: str
    split: str  # "flat" or "nested"

    @property
    def mesh(self) -> str:
        """Shardy's text of the mesh."""
        axes = ", ".join(f'"{name}"={size}' for name, size in self.axes)
        return f"<[{axes}], device_ids={list(self.device_ids)}>"


@dataclass(frozen=True)
class JaxUse:
    """How a JAX module is used."""

    x64: bool  # jax_enable_x64
    axis_types: str  # of the meshes: "Auto" or "Explicit"
    set_mesh: str  # the mesh that is set around everything: "", "source" or "target"
    call: str  # "eager", "jit", or "program": pad, reshard and unpad in one jit
    derivative: str  # "", "vjp" or "jvp"
    batch: int  # the size of a dimension that is vmapped, 0 for none
    other_axes: bool  # meshes are given flat, as one axis of another name
    placed: bool  # whether the argument is sharded as the module says
    names_target: bool  # whether target_mesh is given where it need not be
    devices: tuple[int, ...]  # the number of the JAX device that each logical id, ascending, is


@dataclass(frozen=True)
class TorchUse:
    """How a Triton module is used."""

    out: bool = False  # results are written to tensors of the caller's
    gradient: bool = False  # the shards require gradients, which are pulled back
    negative: str = ""  # what has the lazy negative bit: "", "shards" or "out"
    offset: int = 0  # elements between an address that is a multiple of 16 bytes and the shards


Use = JaxUse | TorchUse


@dataclass(frozen=True)
class Case:
    """One run of one emitted module."""

    id: int
    backend: str
    shape: tuple[int, ...]
    dtype: str
    source: Side
    target: Side
    strategy: str  # "auto", "direct" or "basis"
    topology: str | None
    use: Use

    @property
    def device_ids(self) -> tuple[int, ...]:
        """All logical devices, ascending."""
        return tuple(sorted({*self.source.device_ids, *self.target.device_ids}))

    @property
    def same_order(self) -> bool:
        """Whether both meshes list the same devices in the same order."""
        return self.source.device_ids == self.target.device_ids

    @property
    def floating(self) -> bool:
        """Whether elements are floating-point numbers."""
        return "float" in self.dtype

    def command(self) -> str:
        """The command that emits the module of this case."""
        flags = {
            "--mesh": self.source.mesh,
            "--target-mesh": self.target.mesh,
            "--shape": "x".join(map(str, self.shape)) or "()",
            "--dtype": self.dtype,
            "--source": self.source.sharding,
            "--target": self.target.sharding,
            "--source-split": self.source.split,
            "--target-split": self.target.split,
            "--backends": self.backend,
            "--strategy": self.strategy,
            "--topology": self.topology,
            "--name": f"case{self.id}",
            "-o": "build/fuzz",
        }
        words = [word for flag, text in flags.items() if text for word in (flag, text)]
        return shlex.join(["shardwright", "emit", *words])

    def describe(self) -> str:
        """What the case is, over a few lines."""
        return (
            f"case {self.id}: {', '.join(sorted(features(self)))}\n"
            f"    {self.use}\n"
            f"    {self.command()}"
        )


def unreduced(sharding: str) -> tuple[str, frozenset[str]]:
    """What stands behind `unreduced=` in the text of a sharding: "max" or "min", and references."""
    text = sharding.partition("unreduced=")[2]
    return text.partition("{")[0], frozenset(re.findall(r'"[^"]*"(?::\(\d+\)\d+)?', text))


def features(case: Case) -> frozenset[str]:
    """The names of what is particular to a case; `FEATURES` lists them all."""
    source, target = case.source, case.target
    own, other = set(source.device_ids), set(target.device_ids)
    found = {
        case.dtype,
        f"rank {len(case.shape)}",
        f"strategy {case.strategy}",
        "devices the same" if own == other else "devices foreign",
        "devices disjoint" if not own & other else "devices shared",
        "order the same" if case.same_order else "order another",
        "axes the same" if source.axes == target.axes else "axes others",
    }
    found |= {f"{side.split} split" for side in (source, target)}
    given: dict[str, object] = {
        "topology": case.topology,
        "sub-axes": ":(" in source.sharding + target.sharding,
        "ids permuted": list(source.device_ids) != sorted(source.device_ids),
        "one device": min(len(own), len(other)) == 1,
        "open or priority": "?" in source.sharding + target.sharding,
        "fewer elements than devices": math.prod(case.shape) < len(own),
    }
    found |= {name for name, is_there in given.items() if is_there}
    return frozenset(found | _sums(case) | _used(case.use))


def _sums(case: Case) -> set[str]:
    """What becomes of unreduced axes."""
    (kind, before), (_, after) = unreduced(case.source.sharding), unreduced(case.target.sharding)
    kind = kind or unreduced(case.target.sharding)[0]
    given = {
        "unreduced kept": before and before == after,
        "unreduced kept in part": after and after < before,
        "unreduced summed": before and not after,
        "unreduced new": not after <= before,
        f"unreduced {kind}": kind,
    }
    return {name for name, is_there in given.items() if is_there}


def _used(use: Use) -> set[str]:
    match use:
        case JaxUse():
            given: dict[str, object] = {
                "x64 on": use.x64,
                "x64 off": not use.x64,
                "axes Explicit": use.axis_types == "Explicit",
                "set_mesh": use.set_mesh,
                use.call: True,
                use.derivative: use.derivative,
                "vmap": use.batch,
                "mesh of other axes": use.other_axes,
                "argument placed otherwise": not use.placed,
                "no target_mesh": not use.names_target,
                "devices shuffled": list(use.devices) != sorted(use.devices),
            }
        case TorchUse():
            given = {
                "out": use.out,
                "gradient": use.gradient,
                "negative shards": use.negative == "shards",
                "negative out": use.negative == "out",
                "unaligned": use.offset,
            }
    return {name for name, is_there in given.items() if is_there}


_EVERYWHERE = (
    *(dtype for dtype in ITEMSIZES if dtype != "float64"),
    *(f"rank {rank}" for rank in range(5)),
    *("strategy auto", "strategy direct", "topology"),
    *("devices the same", "devices foreign", "devices disjoint", "devices shared"),
    *("order the same", "order another", "axes the same", "axes others"),
    *("flat split", "nested split", "sub-axes", "ids permuted", "one device"),
    *("open or priority", "fewer elements than devices"),
)
_JAX = (
    *("x64 on", "x64 off", "axes Explicit", "set_mesh", "eager", "jit", "program"),
    *("vjp", "jvp", "vmap", "mesh of other axes", "argument placed otherwise"),
    *("no target_mesh", "devices shuffled"),
)
_SUMS = tuple(
    f"unreduced {what}" for what in ("kept", "kept in part", "summed", "new", "max", "min")
)
FEATURES = {
    "pallas_tpu": (*_EVERYWHERE, *_JAX),
    "triton_gpu": (
        *(*_EVERYWHERE, "float64"),
        *("out", "gradient", "negative shards", "negative out", "unaligned"),
    ),
    "jax_xla": (*_EVERYWHERE, *_JAX, *_SUMS, "float64", "strategy basis"),
}
"""What the cases of each backend must have among them."""
