"""What emitted modules must have."""

from shardwright.codegen.backends.contract import Contract

CONTRACT = Contract(
    verified=("reshard_local",),
    compiled=("ALIGNED", "BLOCK", "PIECES", "SOURCE_IDS", "TARGET_IDS", "pull_kernel", "senders"),
    jitted=True,
    grouped=(
        "COLUMNS",
        "MEMBERS",
        "ROWS",
        "SOURCE_IDS",
        "TARGET_IDS",
        "UNIT",
        "_pulled",
        "copy_kernel",
        "reshard_local",
    ),
)
