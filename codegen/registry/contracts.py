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
"""The names by which `verify` runs JAX modules."""

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
"""The names by which `verify` compiles JAX programs."""


JAX_MATMULS = (
    "__all__",
    *("DTYPE", "LHS", "LHS_SHAPE", "MESH", "OUT", "OUT_DTYPE", "OUT_SHAPE", "RHS", "RHS_SHAPE"),
    *("lhs_box", "lhs_sharding", "matmul", "out_box", "out_sharding", "pad_lhs", "pad_rhs"),
    *("rhs_box", "rhs_sharding", "unpad"),
)
"""The names by which `verify` runs JAX matmuls."""

TORCH_MATMULS = (
    "__all__",
    *("DTYPE", "LHS", "LHS_SHAPE", "MESH", "OUT", "OUT_DTYPE", "OUT_SHAPE", "RHS", "RHS_SHAPE"),
    *("IDS", "WIRE_BYTES", "lhs_box", "matmul", "matmul_local", "out_box", "product_box"),
    *("rhs_box", "_HOST"),
)
"""The names by which `verify` runs matmuls of torch tensors."""


JAX_EXPORTS = {
    "pad": "pad",
    "reshard": "values",
    "source_shape": "constants",
    "source_sharding": "values",
    "target_shape": "constants",
    "target_sharding": "values",
    "unpad": "unpad",
}
"""Each function that JAX modules export, and the check that exercises it."""

JAX_GROUP_EXPORTS = {
    "NAMES": "values",
    "pad": "pad",
    "reshard": "values",
    "source_sharding": "values",
    "target_sharding": "values",
    "unpad": "unpad",
}
"""The same for groups."""

JAX_RELAYOUT_EXPORTS = {
    "RECEIVED": "bytes",
    "reshard": "values",
    "source_sharding": "values",
    "target_sharding": "values",
}
"""The same for relayouts."""

JAX_MATMUL_EXPORTS = {
    "lhs_sharding": "values",
    "matmul": "values",
    "out_sharding": "values",
    "pad_lhs": "pad",
    "pad_rhs": "pad",
    "rhs_sharding": "values",
    "unpad": "unpad",
}
"""The same for matmuls."""


@dataclass(frozen=True)
class Contract:
    """The names that the modules of a backend export for `verify` and for `compile`.

    `verified` and `compiled` are used in addition to NAMES. `grouped`: the names of a group's
    module. `matmul`: the names of a matmul's module, empty if the backend has no matmuls.
    `stacks_terms`: whether arrays of partial sums have a first dimension of terms; otherwise each
    device has its own term in the form of a shard. `exported`: each function that modules may
    export, and the check that exercises it; `exported_by_groups`, `exported_by_matmuls` and
    `exported_by_relayouts`: the same for other modules. `pads`: whether all devices have shards of
    one size, padded at their ends. `has_phases`: whether `_HOST` lists its exchanges.
    `collective`: whether kernels synchronise by collective ids, which must differ between
    operations.
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
