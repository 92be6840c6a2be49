"""Public reports as small inputs: what people asked of XLA, torch and their libraries.

Each is named as in `../shared/corpus/reports.json`, with the thread that it is from.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Program(NamedTuple):
    """A function of `report_process.py`, and the bytes that a device may receive at most."""

    thread: str
    mesh: dict[str, int]
    avals: tuple[tuple[tuple[int, ...], str], ...]
    inputs: Any
    outputs: Any
    most: int


PROGRAMS = {
    "xla_transposed_dot": Program(
        *("openxla/xla#4062", {"a": 4, "b": 2}),
        (((64, 128), "float32"), ((128, 96), "float32")),
        ("P('a')", "P(None, 'b')"),
        "P('a', 'b')",
        3_072,
    ),
    "xla_dynamic_slice_replicated": Program(
        *("openxla/xla#44796", {"x": 8}),
        (((8, 16, 16), "float32"), ((), "int32")),
        ("P('x')", "P()"),
        "P()",
        1_792,
    ),
    "jax_concat_replica_axis": Program(
        *("jax-ml/jax#24576", {"data": 4, "model": 2}),
        (((4,), "float32"), ((12,), "float32")),
        ("P('data')", "P('data')"),
        "P('data')",
        12,
    ),
    "slice_split_dim": Program(
        *("pytorch/pytorch#149447", {"x": 4}),
        (((32, 32), "float32"),),
        ("P(None, 'x')",),
        "P(None, 'x')",
        512,
    ),
    "fp8_blocks_program": Program(
        *("verl-project/verl#2809", {"x": 4}),
        (((512, 256), "float32"),),
        ("P('x')",),
        ("P(None, 'x')", "P()"),
        24_600,
    ),
    "zigzag_program": Program(
        *("AI-Hypercomputer/maxtext#4275", {"cp": 4}),
        (((2, 64, 16), "float32"),),
        ("P(None, 'cp')",),
        "P(None, 'cp')",
        2_048,
    ),
}


class Call(NamedTuple):
    """An array of a process with 16 devices; sides are axes, ids and a spec."""

    thread: str
    shape: tuple[int, ...]
    source: tuple[dict[str, int], tuple[int, ...], tuple[Any, ...]]
    target: tuple[dict[str, int], tuple[int, ...], tuple[Any, ...]]
    received: int


CALL = Call(
    "marin-community/levanter#635",
    (32, 8, 64),
    (
        {"data": 4, "model": 4},
        (0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15),
        (None, "model", "data"),
    ),
    (
        {"all": 16},
        (0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15),
        (None, None, "all"),
    ),
    4_096,
)
"""`device_order_16`."""


class Moved(NamedTuple):
    """Tensors from one mesh to another: each with its shape, the smaller one that is run, and its
    shardings; `received`: bytes of the busiest device at full size; `rows`: of each target device,
    what it holds of the tensor that is run, as slices by name."""

    thread: str
    mesh: str
    target_mesh: str
    dtype: str
    tensors: dict[str, tuple[tuple[int, ...], tuple[int, ...], str, str]]
    received: int | None
    held: Any


def part(dim: int, index: int, count: int) -> tuple[Any, ...]:
    """The slices of part `index` of `count` equal ones along a dimension; `count` is its extent
    in parts of one row."""
    return (*([slice(None)] * dim), slice(index * count, (index + 1) * count))


SERVER = '<["tp"=4], device_ids=[2, 3, 4, 5]>'

MOVED = {
    "striped_layout": Moved(
        *("zhuzilin/ring-flash-attention#2", "cp=4", "cp=4", "float32"),
        {"x": ((4, 4, 2), (4, 4, 2), '[{"cp"}, {}, {}]', '[{}, {"cp"}, {}]')},
        24,
        lambda rank: {"x": part(1, rank, 1)},  # rows r, r + 4, r + 8, r + 12
    ),
    "experts_strided": Moved(
        *("pytorch/torchtitan#1561", "dp=2,ep=4"),
        *('<["ep"=8], device_ids=[8, 9, 10, 11, 12, 13, 14, 15]>', "bfloat16"),
        {
            "w": (
                *((8, 512, 256), (8, 4, 2)),
                *("[_StridedShard(dim=0, sf=4), Shard(dim=0)]", "[Shard(0)]"),
            )
        },
        262_144,
        lambda rank: {"w": part(0, rank, 1)},
    ),
    "fused_qkv_kv_replicas_out_views": Moved(
        *("vllm-project/vllm#2379", "tp=2", SERVER, "float32"),
        {
            "q": ((8, 4, 6), (8, 4, 6), '[{"tp"}, {}, {}]', '[{"tp"}, {}, {}]'),
            "k": ((2, 4, 6), (2, 4, 6), '[{"tp"}, {}, {}]', '[{"tp":(1)2}, {}, {}]'),
            "v": ((2, 4, 6), (2, 4, 6), '[{"tp"}, {}, {}]', '[{"tp":(1)2}, {}, {}]'),
        },
        None,
        lambda rank: {
            "q": part(0, rank, 2),
            "k": part(0, rank // 2, 1),
            "v": part(0, rank // 2, 1),
        },
    ),
    "kv_cache_group_map": Moved(
        *("sgl-project/sglang#23744", "one=1", '<["tp"=4], device_ids=[1, 2, 3, 4]>', "bfloat16"),
        {"kv": ((2, 64, 16, 8), (2, 4, 2, 2), "P()", '[{"tp":(1)2}, {}, {}, {}]')},
        16_384,
        lambda rank: {"kv": part(0, rank // 2, 1)},  # heads 0, 0, 1, 1
    ),
    "experts_ep_to_tp_fused": Moved(
        *("ISEEKYAN/Megatron-LM#85", "ep=8"),
        *('<["tp"=8], device_ids=[8, 9, 10, 11, 12, 13, 14, 15]>', "bfloat16"),
        {
            "w13": (
                *((256, 2, 512, 2048), (8, 2, 16, 2)),
                *('[{"ep"}, {}, {}, {}]', '[{}, {}, {"tp"}, {}]'),
            ),
            "w2": ((256, 2048, 512), (8, 2, 8), '[{"ep"}, {}, {}]', '[{}, {}, {"tp"}]'),
        },
        201_326_592,
        lambda rank: {"w13": part(2, rank, 2), "w2": part(2, rank, 1)},
    ),
    "kv_tp2_tp4": Moved(
        *("LMCache/LMCache#1629", "tp=2", SERVER, "bfloat16"),
        {
            "kv": (
                *((2, 32, 8, 16, 128), (2, 2, 8, 2, 2)),
                *('[{}, {}, {"tp"}, {}, {}]', '[{}, {}, {"tp"}, {}, {}]'),
            )
        },
        524_288,
        lambda rank: {"kv": part(2, rank, 2)},
    ),
}


class Product(NamedTuple):
    """A matmul; `small`: the extents i, j, k of the one that is run on `backend`."""

    thread: str
    mesh: str
    dtype: str
    extents: tuple[int, int, int]
    shardings: tuple[str, str, str]
    most: int
    small: tuple[int, int, int]
    backend: str


PRODUCTS = {
    "ag_gemm_two_ranks": Product(
        *("ByteDance-Seed/Triton-distributed#79", "tp=2", "float16", (64, 128, 64)),
        ("P('tp')", "P(None, 'tp')", "P(None, 'tp')"),
        *(8_192, (16, 32, 16), "triton_gpu"),
    ),
    "collective_matmul_axes": Product(
        *("jax-ml/jax#29849", "a=2,b=4", "bfloat16", (512, 256, 512)),
        ("P(('a', 'b'))", "P(None, ('a', 'b'))", "P(None, ('a', 'b'))"),
        *(229_376, (16, 8, 16), "jax_xla"),
    ),
}

IN_RANKS = {"fsdp2_tp_one_call": "pytorch/pytorch#121062"}
"""`call/dtensor_cases.py` has it, among four processes."""


class Layouts(NamedTuple):
    """Tensors from one stored layout to another, each a mesh and the layouts of its buffers;
    `received`: bytes of the busiest device; `total`: of all, None where the report has none."""

    thread: str
    dtype: str
    tensors: dict[str, tuple[int, ...]]
    source: tuple[str, dict[str, str]]
    target: tuple[str, dict[str, str]]
    received: int
    total: int | None


UNITS = {"q": (128,), "k": (4,), "v": (4,)}
RAW_ROWS = """cut(1, {"tp":(2)4}, stack(1, q '(g=2 r) -> g r' [{"tp":(1)2}],
    k '(g=2 r) -> g r' [{"tp":(1)2}], v '(g=2 r) -> g r' [{"tp":(1)2}]))"""
HEADS = 'stack(0, q[{"tp"}], k[{"tp":(1)2}], v[{"tp":(1)2}])'
SECTIONS = {name: (rows, 3) for name, rows in zip("abcde", (16, 16, 4, 4, 2), strict=True)}
LAST_8 = '<["tp"=8], device_ids=[8, 9, 10, 11, 12, 13, 14, 15]>'
LAST_16 = f'<["tp"=16], device_ids={list(range(8, 24))}>'

LAYOUTS = {
    "qkv_raw_rows": Layouts(  # a unit is half a head, here a byte; k and v of two ranks are one
        *("ai-dynamo/modelexpress#650", "int8", UNITS, ("tp=8", {"qkv": RAW_ROWS})),
        *((LAST_8, {"qkv": HEADS}), 20, None),
    ),
    "qkv_raw_rows, same devices": Layouts(
        *("ai-dynamo/modelexpress#650", "int8", UNITS, ("tp=8", {"qkv": RAW_ROWS})),
        *(("tp=8", {"qkv": HEADS}), 6, 36),
    ),
    "gdn_sections": Layouts(
        *("NVIDIA-NeMo/Megatron-Bridge#2013", "float32", SECTIONS),
        ("tp=2", {"in_proj": "cut(0, {tp}, stack(0, a, b, c, d, e))"}),
        ("tp=2", {"in_proj": "stack(0, a[{tp}], b[{tp}], c[{tp}], d[{tp}], e[{tp}])"}),
        *(96, 192),
    ),
    "vocab_padding": Layouts(
        *("sgl-project/sglang#31799", "float32", {"w": (10, 2)}),
        ("tp=4", {"w": "w[{tp} sized(4)]"}),
        ('<["tp"=2], device_ids=[4, 5]>', {"w": "w[{tp} sized(6)]"}),
        *(48, 80),
    ),
    "fp8_scale_overlap": Layouts(
        *("vllm-project/vllm#42384", "float32", {"scales": (24,)}),
        ("fsdp=8", {"scales": "scales[{fsdp}]"}),
        (LAST_16, {"scales": "scales[{tp} cover(128, 3072, 192)]"}),
        *(8, 128),
    ),
    "zigzag_program": Layouts(
        *("AI-Hypercomputer/maxtext#4275", "float32", {"x": (2, 64, 16)}),
        ("cp=4", {"x": "x[{}, {cp}]"}),
        ("cp=4", {"x": "stack(1, x[{}, {cp} into(8)], x[{}, {cp} into(8) reversed])"}),
        *(2_048, None),
    ),
    "striped_layout": Layouts(
        *("zhuzilin/ring-flash-attention#2", "float32", {"x": (16, 2)}),
        ("cp=4", {"x": "x[{cp}]"}),
        ("cp=4", {"x": "x '(i r=4) d -> r i d' [{cp}]"}),
        *(24, None),
    ),
    "fsdp2_tp_one_call": Layouts(
        *("pytorch/pytorch#121062", "float32", {"w": (16, 4)}),
        ("dp=2,tp=2", {"w": "(_StridedShard(0, split_factor=2), Shard(0))"}),
        ("dp=2,tp=2", {"w": "(Replicate(), Shard(0))"}),
        *(64, None),
    ),
    "device_order_16": Layouts(
        *("marin-community/levanter#635", "float32", {"x": (32, 8, 64)}),
        (
            f'<["data"=4, "model"=4], device_ids={[*CALL.source[1]]}>',
            {"x": "P(None, 'model', 'data')"},
        ),
        (f'<["all"=16], device_ids={[*CALL.target[1]]}>', {"x": "P(None, None, 'all')"}),
        *(4_096, None),
    ),
    "fused_qkv_kv_replicas_out_views": Layouts(  # 4 heads of 24 elements
        *("vllm-project/vllm#2379", "float32", {"q": (8, 4, 6), "k": (2, 4, 6), "v": (2, 4, 6)}),
        ("tp=2", {"qkv": "stack(0, q[{tp}], k[{tp}], v[{tp}])"}),
        *((SERVER, {"qkv": HEADS}), 384, None),
    ),
}
"""What of them is about layouts, as layouts. Modules that move them are for issue 9."""

LATER = {"checkpoint_other_topology": ("google/orbax#648", 11)}
"""What has no words yet, with the issue of twelve that brings it."""
