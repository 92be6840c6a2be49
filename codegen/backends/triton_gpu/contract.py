"""What emitted modules must have."""

from shardwright.codegen.backends.contract import TORCH_MATMULS, Contract

CONTRACT = Contract(
    verified=("reshard", "reshard_local"),
    compiled=("SOURCE_IDS", "TARGET_IDS", "_HOST", "pull_kernel"),
    grouped=("NAMES", "_HOST", "reshard_local"),
    matmul=TORCH_MATMULS,
    stacks_terms=False,
    has_phases=True,
)
