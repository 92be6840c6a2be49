"""A case of the fuzz: a reshard, the backend that is emitted for it, and how its module is used."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

MOST_VERIFIED = 64
"""Most devices of a module that `verify` runs as it is; a larger mesh has a smaller twin."""

BACKENDS = ("pallas_tpu", "triton_gpu", "jax_xla")
BYTES_ALONE = "switch:16,latency=1e-12"
"""A network without latency: replicas share in reducing small tensors too, in two exchanges."""
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

    door: str = "local"  # `reshard_local`; "group": `reshard`; "dtensor": `reshard_dtensor`
    later: bool = False  # over a group: `async_op`, waited for after the next call has started
    out: bool = False  # results are written to tensors of the caller's
    gradient: bool = False  # the shards require gradients, which are pulled back
    negative: str = ""  # what has the lazy negative bit: "", "shards" or "out"
    offset: int = 0  # elements between an address that is a multiple of 16 bytes and the shards


@dataclass(frozen=True)
class VerifyUse:
    """The module is judged as `shardwright verify` does: by the oracle, and by what kernels do."""


Use = JaxUse | TorchUse | VerifyUse


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
    def many(self) -> bool:
        """Whether there are more devices than `verify` runs at full size."""
        return len(self.device_ids) > MOST_VERIFIED

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
