"""From two shardings of one tensor to kernels a person can read.

    import shardwright as sw

    mesh = sw.Mesh({"x": 2, "y": 3})
    reshard = sw.Reshard(
        shape=(6, 6),
        dtype="float32",
        source=mesh.sharding('[{"x"}, {"y"}]'),
        target=mesh.sharding('[{"y"}, {"x"}]'),
    )
    plan = sw.plan(reshard)
    sw.emit(plan).write("generated/transpose_2x3")

Names are imported when they are first used; none of them imports jax, torch or triton by itself.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

__version__ = "0.2.0"

if TYPE_CHECKING:
    from shardwright.codegen.call.entry import reshard
    from shardwright.codegen.call.sync import Sync, sync
    from shardwright.codegen.checks.report import Report
    from shardwright.codegen.learn.compare import Comparison, compare
    from shardwright.codegen.learn.learn import Learned, learn
    from shardwright.codegen.learn.sizes import LearnedSizes, learn_sizes
    from shardwright.codegen.operations.bundles.check import Problem, check
    from shardwright.codegen.operations.bundles.verify import verify
    from shardwright.codegen.operations.emit.choice import plan
    from shardwright.codegen.operations.emit.emit import emit
    from shardwright.codegen.operations.emit.html import html
    from shardwright.codegen.operations.emit.matmul import MatmulBundle
    from shardwright.codegen.operations.emit.model_bundle import ModelBundle
    from shardwright.codegen.operations.emit.program import ProgramBundle
    from shardwright.codegen.operations.emit.relayout import RelayoutBundle
    from shardwright.codegen.operations.emit.reshard import Bundle
    from shardwright.codegen.partition import strategies
    from shardwright.codegen.partition.constraints import constrain, shard_alike
    from shardwright.codegen.partition.entry import partition
    from shardwright.codegen.partition.partitioned import Partitioned
    from shardwright.codegen.show import derivation, pictures, svg, tile_table
    from shardwright.codegen.spec.config import load_toml
    from shardwright.codegen.spec.description import Description
    from shardwright.codegen.spec.interop import to_named_sharding
    from shardwright.ir.collectives import (
        all_gather,
        all_reduce,
        all_to_all,
        permute,
        reduce_scatter,
        slice,
    )
    from shardwright.ir.errors import InputError
    from shardwright.ir.jax_specs import from_named_sharding
    from shardwright.ir.matmul import Matmul
    from shardwright.ir.matmul_plan import MatmulPlan
    from shardwright.ir.mesh import AxisRef, Mesh
    from shardwright.ir.model import Model
    from shardwright.ir.model_plan import ModelPlan
    from shardwright.ir.plan import Plan
    from shardwright.ir.relayout import Relayout, RelayoutPlan
    from shardwright.ir.reshard import Reshard
    from shardwright.ir.rules import Rules
    from shardwright.ir.sharding import DimSharding, Sharding
    from shardwright.ir.stacks import cut, stack
    from shardwright.ir.stored import Stored
    from shardwright.ir.torch_placements import from_torch

# In the source tree the sub-packages are next to this folder, not in it. Python started in that
# tree finds this folder before an installed package, and would find no sub-package.
if not Path(__file__).with_name("ir").is_dir():
    __path__.append(str(Path(__file__).parent.parent))

_HOMES = {
    "shardwright.codegen.call.entry": ("reshard",),
    "shardwright.codegen.call.sync": ("Sync", "sync"),
    "shardwright.codegen.operations.emit.choice": ("plan",),
    "shardwright.codegen.operations.emit.emit": ("emit",),
    "shardwright.codegen.operations.emit.reshard": ("Bundle",),
    "shardwright.codegen.operations.emit.html": ("html",),
    "shardwright.codegen.operations.emit.matmul": ("MatmulBundle",),
    "shardwright.codegen.operations.emit.model_bundle": ("ModelBundle",),
    "shardwright.codegen.operations.emit.program": ("ProgramBundle",),
    "shardwright.codegen.operations.emit.relayout": ("RelayoutBundle",),
    "shardwright.codegen.operations.bundles.check": ("Problem", "check"),
    "shardwright.codegen.spec.interop": ("to_named_sharding",),
    "shardwright.codegen.spec.description": ("Description",),
    "shardwright.codegen.learn.compare": ("Comparison", "compare"),
    "shardwright.codegen.learn.learn": ("Learned", "learn"),
    "shardwright.codegen.learn.sizes": ("LearnedSizes", "learn_sizes"),
    "shardwright.codegen.partition": ("strategies",),
    "shardwright.codegen.partition.constraints": ("constrain", "shard_alike"),
    "shardwright.codegen.partition.entry": ("partition",),
    "shardwright.codegen.partition.partitioned": ("Partitioned",),
    "shardwright.codegen.show": ("derivation", "pictures", "svg", "tile_table"),
    "shardwright.codegen.spec.config": ("load_toml",),
    "shardwright.codegen.operations.bundles.verify": ("verify",),
    "shardwright.codegen.checks.report": ("Report",),
    "shardwright.ir.collectives": (
        *("all_gather", "all_reduce", "all_to_all", "permute", "reduce_scatter", "slice"),
    ),
    "shardwright.ir.errors": ("InputError",),
    "shardwright.ir.jax_specs": ("from_named_sharding",),
    "shardwright.ir.matmul": ("Matmul",),
    "shardwright.ir.matmul_plan": ("MatmulPlan",),
    "shardwright.ir.mesh": ("AxisRef", "Mesh"),
    "shardwright.ir.model": ("Model",),
    "shardwright.ir.model_plan": ("ModelPlan",),
    "shardwright.ir.plan": ("Plan",),
    "shardwright.ir.relayout": ("Relayout", "RelayoutPlan"),
    "shardwright.ir.reshard": ("Reshard",),
    "shardwright.ir.rules": ("Rules",),
    "shardwright.ir.sharding": ("DimSharding", "Sharding"),
    "shardwright.ir.stacks": ("cut", "stack"),
    "shardwright.ir.stored": ("Stored",),
    "shardwright.ir.torch_placements": ("from_torch",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AxisRef",
    "Bundle",
    "Comparison",
    "Description",
    "DimSharding",
    "InputError",
    "Learned",
    "LearnedSizes",
    "Matmul",
    "MatmulBundle",
    "MatmulPlan",
    "Mesh",
    "Model",
    "ModelBundle",
    "ModelPlan",
    "Partitioned",
    "Plan",
    "Problem",
    "ProgramBundle",
    "Relayout",
    "RelayoutBundle",
    "RelayoutPlan",
    "Report",
    "Reshard",
    "Rules",
    "Sharding",
    "Stored",
    "Sync",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "check",
    "compare",
    "constrain",
    "cut",
    "derivation",
    "emit",
    "from_named_sharding",
    "from_torch",
    "html",
    "learn",
    "learn_sizes",
    "load_toml",
    "partition",
    "permute",
    "pictures",
    "plan",
    "reduce_scatter",
    "reshard",
    "shard_alike",
    "slice",
    "stack",
    "strategies",
    "svg",
    "sync",
    "tile_table",
    "to_named_sharding",
    "verify",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'shardwright' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
