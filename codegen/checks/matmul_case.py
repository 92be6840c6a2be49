"""A matmul module to verify, as plain data that is sent to a worker as one line of JSON."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardwright.codegen.checks.case import placement, placement_from
from shardwright.codegen.checks.oracle.definition import Placement

if TYPE_CHECKING:  # only for annotations: a worker handles plain data
    from shardwright.ir.matmul import Matmul

SIDES = ("lhs", "rhs", "out")


@dataclass(frozen=True)
class MatmulCase:
    """An emitted module and the matmul that it claims to perform.

    `shapes` and `placements`: of lhs, rhs and result, in this order; `texts`: the required values
    of the module's string constants; `execute`: whether to multiply; `derivative`: whether to check
    the gradients too.
    """

    name: str
    backend: str
    module: Path
    dtype: str
    out_dtype: str
    shapes: tuple[tuple[int, ...], ...]
    placements: tuple[Placement, ...]
    texts: tuple[tuple[str, str], ...] = ()
    execute: bool = True
    derivative: bool = False

    @staticmethod
    def of(matmul: Matmul, name: str, backend: str, module: Path) -> MatmulCase:
        """Return the case of a matmul whose module is the file `module`."""
        shardings = (matmul.lhs.sharding, matmul.rhs.sharding, matmul.out)
        texts = zip(("LHS", "RHS", "OUT"), map(str, shardings), strict=True)
        return MatmulCase(
            name=name,
            backend=backend,
            module=module,
            dtype=matmul.dtype,
            out_dtype=matmul.out_dtype,
            shapes=(matmul.lhs.shape, matmul.rhs.shape, matmul.out_shape),
            placements=tuple(placement(each, "flat") for each in shardings),
            texts=(("MESH", str(matmul.mesh)), *texts),
        )

    def devices(self) -> tuple[int, ...]:
        """Return all device ids, ascending."""
        return tuple(sorted(self.placements[0].device_ids))

    def to_json(self) -> str:
        """Return one line of JSON; `from_data` reads its contents."""
        data = dataclasses.asdict(self)
        data["module"] = str(self.module)
        for place in data["placements"]:
            place["device_ids"] = list(place["device_ids"])
        return json.dumps(data)

    @staticmethod
    def from_data(data: dict[str, Any]) -> MatmulCase:
        """Return the case in parsed JSON."""
        data["module"] = Path(data["module"])
        data["shapes"] = tuple(map(tuple, data["shapes"]))
        data["placements"] = tuple(map(placement_from, data["placements"]))
        data["texts"] = tuple((key, value) for key, value in data["texts"])
        return MatmulCase(**data)
