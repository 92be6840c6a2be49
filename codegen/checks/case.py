"""A module to verify, as plain data that is sent to a worker as one line of JSON."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardwright.codegen.checks.oracle import sums as oracle_terms
from shardwright.codegen.checks.oracle.definition import Placement, Ref

if TYPE_CHECKING:  # only for annotations: a worker handles plain data
    from shardwright.ir.axes import AxisRef
    from shardwright.ir.reshard import Reshard
    from shardwright.ir.sharding import Sharding


MAX_DEVICES = 64
"""The maximum number of devices on which to run a module: interpreters need one thread or one
launch per device."""

Transfer = tuple[int, ...]
"""The sender, the receiver, then the low and high tensor index in each dimension."""


@dataclass(frozen=True)
class Case:
    """An emitted module and the reshard that it claims to perform.

    `texts`: the required values of the module's string constants. `transfers`: the transfers that
    its index functions must list, if any. `execute`: whether to run the module; False if its tensor
    is too large. `derivative`: whether to check the derivative too, which needs the backward module
    in the same folder. `transposed`: whether the module moves cotangents back. Then all terms along
    an axis unreduced only in the target are copies of one value. Along an axis unreduced only in
    the source, the module reads the term at coordinate 0 and reduces nothing.
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
    transposed: bool = False

    @property
    def source_array(self) -> Placement:
        """The placement of the module's argument; a partial sum has an extra first dimension of
        terms."""
        return oracle_terms.array_of(self.source)

    @property
    def target_array(self) -> Placement:
        """The placement of the module's result."""
        return oracle_terms.array_of(self.target)

    @property
    def source_shape(self) -> tuple[int, ...]:
        """The shape of the module's argument, without padding."""
        return oracle_terms.array_shape(self.source, self.shape)

    @property
    def target_shape(self) -> tuple[int, ...]:
        """The shape of the module's result, without padding."""
        return oracle_terms.array_shape(self.target, self.shape)

    @staticmethod
    def of(reshard: Reshard, name: str, backend: str, module: Path) -> Case:
        """Return the case of a reshard whose module is the file `module`."""
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
            transposed=reshard.transposed,
        )

    def devices(self) -> tuple[int, ...]:
        """Return all device ids of both meshes, ascending."""
        return tuple(sorted({*self.source.device_ids, *self.target.device_ids}))

    def to_json(self) -> str:
        """Return one line of JSON; `from_json` reads it back."""
        return json.dumps(_as_data(self))

    @staticmethod
    def from_json(line: str) -> Case:
        """Parse a line written by `to_json`."""
        return Case.from_data(json.loads(line))

    @staticmethod
    def from_data(data: dict[str, Any]) -> Case:
        """Return the case in parsed JSON."""
        data["module"] = Path(data["module"])
        data["shape"] = tuple(data["shape"])
        data["texts"] = tuple((key, value) for key, value in data["texts"])
        data["transfers"] = tuple(map(tuple, data["transfers"]))
        for side in ("source", "target"):
            data[side] = placement_from(data[side])
        return Case(**data)


@dataclass(frozen=True)
class GroupCase:
    """The emitted module of a group, and the cases of its member bundles. `execute`: whether to run
    the module."""

    name: str
    backend: str
    module: Path
    members: tuple[Case, ...]
    execute: bool = True

    def devices(self) -> tuple[int, ...]:
        """Return all device ids, ascending; every member has the same devices."""
        return self.members[0].devices()

    def to_json(self) -> str:
        """Return one line of JSON; `case_of` reads it back."""
        return json.dumps(_as_data(self) | {"members": [_as_data(case) for case in self.members]})


def case_of(line: str) -> Case | GroupCase:
    """Parse a line that `Case.to_json` or `GroupCase.to_json` wrote."""
    data = json.loads(line)
    if "members" not in data:
        return Case.from_data(data)
    members = tuple(map(Case.from_data, data["members"]))
    given = data["name"], data["backend"], Path(data["module"])
    return GroupCase(*given, members, data["execute"])


def _as_data(case: Case | GroupCase) -> dict[str, Any]:
    data = dataclasses.asdict(case)
    data["module"] = str(case.module)
    for side in {"source", "target"} & data.keys():
        data[side]["device_ids"] = list(data[side]["device_ids"])
    return data


def placement(sharding: Sharding, split: str) -> Placement:
    """Return a sharding as plain data for the oracle."""
    return Placement(
        axes=tuple(sharding.mesh.axes),
        device_ids=tuple(sharding.mesh.device_ids),
        dims=tuple(_refs(dim.axes) for dim in sharding.dims),
        split=split,
        unreduced=_refs(sharding.unreduced),
        operator=sharding.operator,
    )


def _refs(axes: tuple[AxisRef, ...]) -> tuple[Ref, ...]:
    return tuple((ref.name, ref.pre, ref.size) for ref in axes)


def placement_from(data: dict[str, Any]) -> Placement:
    """Return a placement from parsed JSON."""
    return Placement(
        axes=tuple((name, size) for name, size in data["axes"]),
        device_ids=tuple(data["device_ids"]),
        dims=tuple(tuple((name, pre, size) for name, pre, size in refs) for refs in data["dims"]),
        split=data["split"],
        unreduced=tuple((name, pre, size) for name, pre, size in data["unreduced"]),
        operator=data["operator"],
    )
