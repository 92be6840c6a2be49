"""The names that emitted modules must have for `verify` and `compile`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

NAMES = (
    "__all__",
    "DTYPE",
    "LOCAL_SOURCE_SHAPE",
    "LOCAL_TARGET_SHAPE",
    "PLAN",
    "SHAPE",
    "SOURCE",
    "SOURCE_MESH",
    "TARGET",
    "TARGET_MESH",
    "source_box",
    "source_shape",
    "target_box",
    "target_shape",
    "_HOST",
)
"""The names that `verify` uses in every module."""

JAX = ("pad", "reshard", "source_sharding", "target_sharding", "unpad")
"""The names that `verify` uses to run JAX modules."""

JAX_PROGRAMS = (
    "PADDED_SOURCE_SHAPE",
    "PADDED_TARGET_SHAPE",
    "SOURCE_AXES",
    "SOURCE_IDS",
    "TARGET_AXES",
    "TARGET_IDS",
    "WIRE_BYTES",
    "_HOST",
)
"""The names that `compile` uses in JAX modules."""


JAX_MATMULS = (
    "__all__",
    *("DTYPE", "LHS", "LHS_SHAPE", "MESH", "OUT", "OUT_DTYPE", "OUT_SHAPE", "RHS", "RHS_SHAPE"),
    *("lhs_box", "lhs_sharding", "matmul", "out_box", "out_sharding", "pad_lhs", "pad_rhs"),
    *("rhs_box", "rhs_sharding", "unpad"),
)
"""The names that `verify` uses to run JAX matmuls."""

TORCH_MATMULS = (
    "__all__",
    *("DTYPE", "LHS", "LHS_SHAPE", "MESH", "OUT", "OUT_DTYPE", "OUT_SHAPE", "RHS", "RHS_SHAPE"),
    *("IDS", "WIRE_BYTES", "lhs_box", "matmul", "matmul_local", "out_box", "product_box"),
    *("rhs_box", "_HOST"),
)
"""The names that `verify` uses to run matmuls of torch tensors."""


JAX_EXPORTS = {
    "pad": "pad",
    "reshard": "values",
    "source_shape": "constants",
    "source_sharding": "values",
    "target_shape": "constants",
    "target_sharding": "values",
    "unpad": "unpad",
}
"""Each function that JAX modules of reshards export, with the check that exercises it."""

JAX_GROUP_EXPORTS = {
    "NAMES": "values",
    "pad": "pad",
    "reshard": "values",
    "source_sharding": "values",
    "target_sharding": "values",
    "unpad": "unpad",
}
"""Each name that JAX modules of groups export, and the check that exercises it."""

JAX_RELAYOUT_EXPORTS = {
    "RECEIVED": "bytes",
    "reshard": "values",
    "source_sharding": "values",
    "target_sharding": "values",
}
"""Each name that JAX modules of relayouts export, and the check that exercises it."""

JAX_MATMUL_EXPORTS = {
    "lhs_sharding": "values",
    "matmul": "values",
    "out_sharding": "values",
    "pad_lhs": "pad",
    "pad_rhs": "pad",
    "rhs_sharding": "values",
    "unpad": "unpad",
}
"""Each function that JAX modules of matmuls export, and the check that exercises it."""


@dataclass(frozen=True)
class Contract:
    """The names that the modules of a backend must have for `verify` and for `compile`.

    `verified` and `compiled`: the names used in addition to NAMES. `exported`: each function that
    modules may export, and the check that exercises it; `exported_by_groups`, `exported_by_matmuls`
    and `exported_by_relayouts`: the same for modules of groups, matmuls and relayouts. `grouped`:
    the names used in a group's module; `matmul`: those used in a matmul's module, empty if the
    backend does not support matmuls. `stacks_terms`: whether arrays of partial sums have a first
    dimension of terms; otherwise each device has its term in the shape of a shard. `pads`: whether
    the shards of all devices have the same size, padded at their ends. `has_phases`: whether
    `_HOST` lists its exchanges. `collective`: whether kernels synchronise by collective ids, which
    must differ between operations.
    """

    verified: tuple[str, ...]
    compiled: tuple[str, ...]
    exported: Mapping[str, str]
    exported_by_groups: Mapping[str, str]
    exported_by_matmuls: Mapping[str, str]
    exported_by_relayouts: Mapping[str, str]
    grouped: tuple[str, ...] = ()
    matmul: tuple[str, ...] = ()
    stacks_terms: bool = True
    pads: bool = True
    has_phases: bool = False
    collective: bool = False
