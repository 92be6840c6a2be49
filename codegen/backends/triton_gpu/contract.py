"""The names that emitted modules must define."""

from shardwright.codegen.registry.contracts import TORCH_MATMULS, Contract

CONTRACT = Contract(
    verified=("reshard", "reshard_local"),
    compiled=("SOURCE_IDS", "TARGET_IDS", "_HOST", "pull_kernel"),
    exported={
        "reshard": "calls of ranks",
        "reshard_dtensor": "DTensors",
        "reshard_local": "values",
        "source_shape": "constants",
        "symmetric_result": "calls of ranks",
        "symmetric_source": "calls of ranks",
        "target_shape": "constants",
    },
    exported_by_groups={"NAMES": "values", "reshard": "calls of ranks", "reshard_local": "values"},
    exported_by_matmuls={
        "matmul": "calls of ranks",
        "matmul_local": "values",
        "synchronize": "calls of ranks",
    },
    exported_by_relayouts={
        "RECEIVED": "bytes",
        "reshard": "calls of ranks",
        "reshard_local": "values",
        "source_shape": "values",
        "target_shape": "values",
    },
    grouped=("NAMES", "_HOST", "reshard_local"),
    matmul=TORCH_MATMULS,
    stacks_terms=False,
    pads=False,
    has_phases=True,
)
