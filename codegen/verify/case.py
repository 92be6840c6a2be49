"""One module to verify, as plain data that goes to a worker as a line of JSON."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardwright.codegen.oracle import Placement

if TYPE_CHECKING:  # a worker knows plain data only
    from shardwright.ir.reshard import Reshard
    from shardwright.ir.sharding import Sharding


MAX_DEVICES = 64
"""Meshes of more devices are not run: the interpreters take a thread, or a launch, a device."""

Transfer = tuple[int, ...]
"""Sender, receiver, then low and high of the tensor range for each dimension."""


@dataclass(frozen=True)
class Case:
    """An emitted module and what it claims to be.

    `texts` are the values its text constants must have; `transfers`, if given, are what its index
    functions must move. Without `execute` nothing is moved, because the tensor is too large.
    `derivative` asks for the module's derivative too, which takes the backward beside it.
    """

    name: str
    backend: str
    module: Path
    shape: tuple[int, ...]
    dtype: str
    source: Placement
    target: Placement
    texts: tuple[tuple[str, str], ...] = ()
    execute: bool = True
    transfers: tuple[Transfer, ...] = ()
    derivative: bool = False

    @staticmethod
    def of(reshard: Reshard, name: str, backend: str, module: Path) -> Case:
        """The case of a reshard whose module is the file `module`."""
        return Case(
            name=name,
            backend=backend,
            module=module,
            shape=reshard.shape,
            dtype=reshard.dtype,
            source=placement(reshard.source, reshard.source_split),
            target=placement(reshard.target, reshard.target_split),
            texts=(
                ("SOURCE_MESH", str(reshard.source.mesh)),
                ("TARGET_MESH", str(reshard.target.mesh)),
                ("SOURCE", str(reshard.source)),
                ("TARGET", str(reshard.target)),
            ),
        )

    def devices(self) -> tuple[int, ...]:
        """All device ids of both meshes, ascending."""
        return tuple(sorted({*self.source.device_ids, *self.target.device_ids}))

    def to_json(self) -> str:
        """One line of JSON; `from_json` reads it back."""
        data = dataclasses.asdict(self)
        data["module"] = str(self.module)
        for side in ("source", "target"):
            data[side]["device_ids"] = list(data[side]["device_ids"])
        return json.dumps(data)

    @staticmethod
    def from_json(line: str) -> Case:
        """The case of a line that `to_json` wrote."""
        data = json.loads(line)
        data["module"] = Path(data["module"])
        data["shape"] = tuple(data["shape"])
        data["texts"] = tuple((key, value) for key, value in data["texts"])
        data["transfers"] = tuple(map(tuple, data["transfers"]))
        for side in ("source", "target"):
            data[side] = _placement_from(data[side])
        return Case(**data)


def placement(sharding: Sharding, split: str) -> Placement:
    """A sharding as the plain data that the oracle takes."""
    return Placement(
        axes=tuple(sharding.mesh.axes),
        device_ids=tuple(sharding.mesh.device_ids),
        dims=tuple(
            tuple((ref.name, ref.pre, ref.size) for ref in dim.axes) for dim in sharding.dims
        ),
        split=split,
    )


def _placement_from(data: dict[str, Any]) -> Placement:
    return Placement(
        axes=tuple((name, size) for name, size in data["axes"]),
        device_ids=tuple(data["device_ids"]),
        dims=tuple(tuple((name, pre, size) for name, pre, size in refs) for refs in data["dims"]),
        split=data["split"],
    )
