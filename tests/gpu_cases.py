"""Reshards for the GPU kernels: each form of moving, with and without rows and outer groups."""

from __future__ import annotations

from shardwright.codegen.backends.triton_gpu.rows import Moves
from shardwright.codegen.moves import plan
from shardwright.codegen.text.context import as_vectors
from shardwright.ir import Mesh, Reshard
from shardwright.ir.dtypes import DTYPES


def make(
    axes: dict[str, int],
    shape: tuple[int, ...],
    source: str,
    target: str,
    target_mesh: Mesh | None = None,
    dtype: str = "float32",
    **splits: str,
) -> Reshard:
    """A reshard on a mesh with these axes, or to another mesh."""
    mesh = Mesh(axes)
    wanted = (target_mesh or mesh).sharding(target)
    return Reshard(shape, dtype, mesh.sharding(source), wanted, **splits)


def moves(reshard: Reshard) -> Moves:
    """How the kernels of a reshard move it."""
    return Moves(as_vectors(plan(reshard).exchange), DTYPES[reshard.dtype])


PAIR = {"x": 2, "y": 4}
CASES = {
    # Every byte in lines of 16.
    "flat": make({"x": 2, "y": 4}, (64, 8), '[{"x", "y"}, {}]', '[{"y", "x"}, {}]'),
    "columns": make({"x": 4, "y": 2}, (64, 64), '[{"x"}, {}]', '[{}, {"y"}]', dtype="bfloat16"),
    "heads": make({"x": 4}, (16, 8, 32), '[{"x"}, {}, {}]', '[{}, {"x"}, {}]', dtype="int8"),
    "outer": make(
        {"x": 2, "y": 2, "z": 2},
        (4, 6, 8, 32),
        '[{"x"}, {"y"}, {"z"}, {}]',
        '[{"y"}, {"z"}, {}, {"x"}]',
    ),
    "nested": make(
        {"x": 2, "y": 2}, (33, 32), '[{"x", "y"}, {}]', '[{}, {"y"}]', source_split="nested"
    ),
    # Lines but for the ends, in all rows or in some.
    "tail": make({"x": 2}, (1002,), '[{"x"}]', '[{"x"}]', Mesh({"x": 2}, [1, 0])),
    "skew": make({"x": 25}, (4000,), '[{"x"}]', '[{"t"}]', Mesh({"t": 4}), dtype="int8"),
    "rows": make(PAIR, (20, 1023), '[{}, {"x"}]', '[{"x"}, {"y"}]'),
    "planes": make(PAIR, (5, 6, 511), '[{"y"}, {}, {"x"}]', '[{}, {"x"}, {"y"}]', dtype="int16"),
    # Units.
    "pairs": make({"x": 4}, (10, 200), '[{"x"}, {}]', '[{}, {"x"}]', dtype="int8"),
    "bytes": make({"x": 3}, (9, 7), '[{"x"}, {}]', '[{}, {"x"}]', dtype="bool"),
    "uneven": make(
        {"x": 2, "y": 2, "z": 2},
        (7, 13, 29),
        '[{"x"}, {"y", "z"}, {}]',
        '[{}, {"z"}, {"y", "x"}]',
    ),
}


def layer(*ids: int) -> dict[str, Reshard]:
    """The weights of a transformer layer with experts, from FSDP on devices 0 to 3 to tensor
    parallel on a 2x2 mesh of these devices: aligned and odd ones, matrices and vectors."""
    target = Mesh({"tp": 2, "r": 2}, list(ids))
    columns, rows, whole = '[{"tp"}, {}]', '[{}, {"tp"}]', "[{}, {}]"

    def weight(shape: tuple[int, ...], to: str, dtype: str = "bfloat16") -> Reshard:
        split = '[{"fsdp"}, {}]' if len(shape) == 2 else '[{"fsdp"}]'
        return make({"fsdp": 4}, shape, split, to, target, dtype)

    made = {
        "q_proj": weight((64, 64), columns),
        "k_proj": weight((32, 64), columns),
        "v_proj": weight((32, 64), columns),
        "o_proj": weight((64, 64), rows),
        "q_bias": weight((64,), '[{"tp"}]'),
        "k_bias": weight((32,), '[{"tp"}]'),
        "v_bias": weight((32,), '[{"tp"}]'),
        "o_bias": weight((64,), "[{}]"),
        "norm1": weight((64,), "[{}]"),
        "norm2": weight((64,), "[{}]"),
        "q_norm": weight((15,), "[{}]", "float32"),
        "k_norm": weight((15,), "[{}]", "float32"),
        "router": weight((7, 64), whole),
        "shared_up": weight((224, 64), columns),
        "shared_down": weight((64, 224), rows),
    }
    made["conv"] = make(
        {"fsdp": 4},
        (8, 3, 4, 16),
        '[{"fsdp"}, {}, {}, {}]',
        '[{}, {}, {"tp"}, {"r"}]',
        target,
    )
    for number in range(3):
        made[f"expert{number}_up"] = weight((48, 64), columns)
        made[f"expert{number}_down"] = weight((64, 47), rows)
    return made


FORMS = {
    name: form
    for form, names in (
        ("lines", ("flat", "columns", "heads", "outer", "nested")),
        ("mixed", ("tail", "skew", "rows", "planes")),
        ("units", ("pairs", "bytes", "uneven")),
    )
    for name in names
}
