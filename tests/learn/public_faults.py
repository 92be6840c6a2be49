"""Faults of converters and loaders that are public, each as a small function of our own beside the
right one: the thread, what was loaded, what had to be, the logical tensors, the ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Arrays = dict[str, Any]
Loader = Callable[[int, Arrays], Arrays]

HEADS = {"q": (16, 8), "k": (4, 8), "v": (4, 8)}  # 8 heads of q, 2 of k and v, of 2 rows


class Fault(NamedTuple):
    """A fault: what is loaded, and what must be."""

    thread: str
    wrong: Loader
    right: Loader
    logical: Any
    ranks: int


def _cut(x: Any, rank: int, ranks: int, dim: int = 0) -> Any:
    return np.split(x, ranks, axis=dim)[rank]


def _qkv(rank: int, tensors: Arrays, q: int, kv: int, ranks: int = 4) -> Arrays:
    """Heads of q from rank `q`, and the kv head `kv`."""
    k, v = (tensors[name][2 * kv : 2 * kv + 2] for name in "kv")
    return {"qkv": np.concatenate([_cut(tensors["q"], q, ranks), k, v])}


def _per_group(tensors: Arrays) -> Any:
    groups = [tensors[name].reshape(2, -1, 8) for name in "qkv"]
    return np.concatenate(groups, axis=1).reshape(-1, 8)


def _halves(rank: int, tensors: Arrays, order: str = "gate up") -> Arrays:
    return {"w13": np.concatenate([_cut(tensors[name], rank, 2) for name in order.split()])}


def _permuted(w: Any, heads: int) -> Any:
    """From pairs of neighbouring rows to halves of a head, as for a rotary embedding."""
    return w.reshape(heads, -1, 2, w.shape[1]).transpose(0, 2, 1, 3).reshape(w.shape)


def _stage(layers: list[int]) -> Callable[[Arrays], Arrays]:
    return lambda tensors: {"layers": tensors["layers"][layers]}


def _two_levels(rank: int, w: Any, outer: int, inner: int) -> Arrays:
    """A chunk of a chunk: rows in 2 by one place of the rank, then in 2 by the other."""
    places = {0: rank // 2, 1: rank % 2}
    return {"w": _cut(_cut(w, places[outer], 2), places[inner], 2)}


def _padded(w: Any, rows: int) -> Any:
    return np.concatenate([w, np.zeros((rows - w.shape[0], w.shape[1]))])


FAULTS = (
    Fault(
        "sgl-project/sglang#23744: kv heads 0, 1, 0, 1 in place of 0, 0, 1, 1",
        lambda r, t: _qkv(r, t, r, r % 2),
        lambda r, t: _qkv(r, t, r, r // 2),
        HEADS,
        4,
    ),
    Fault(
        "NVIDIA-NeMo/RL#2802: q, k and v concatenated where Megatron has them for each group",
        lambda r, t: {"linear_qkv": np.concatenate([t[name] for name in "qkv"])},
        lambda r, t: {"linear_qkv": _per_group(t)},
        HEADS,
        1,
    ),
    Fault(
        "sgl-project/sglang#15432: [w1; w3] cut as one",
        lambda r, t: {"w13": _cut(np.concatenate([t["gate"], t["up"]]), r, 2)},
        _halves,
        {"gate": (8, 4), "up": (8, 4)},
        2,
    ),
    Fault(
        "sgl-project/sglang#32430: [gate; up] for a kernel that takes [up; gate]",
        _halves,
        lambda r, t: _halves(r, t, "up gate"),
        {"gate": (8, 4), "up": (8, 4)},
        2,
    ),
    Fault(
        "ggml-org/llama.cpp#3364: k permuted with as many heads as q has for each of k",
        lambda r, t: {"k": _permuted(t["k"], 8 // 2)},
        lambda r, t: {"k": _permuted(t["k"], 2)},
        {"k": (16, 8)},
        1,
    ),
    Fault(
        "vllm-project/vllm-gguf-plugin#103: every rank loads the first shard of packed weights",
        lambda r, t: _halves(0, t),
        _halves,
        {"gate": (8, 4), "up": (8, 4)},
        2,
    ),
    Fault(
        "BlackSamorez/tensor_parallel#103: GPT-2's q, k and v split as if each head had its own",
        lambda r, t: {"c_attn": _cut(t["c_attn"], r, 2, dim=1)},
        lambda r, t: {
            "c_attn": np.concatenate(
                [_cut(part, r, 2, dim=1) for part in np.split(t["c_attn"], 3, axis=1)], axis=1
            )
        },
        {"c_attn": (4, 12)},
        2,
    ),
    Fault(
        "microsoft/LMOps#106: GPT-2's shards merged without regard to q, k and v",
        lambda r, t: {"c_attn": np.concatenate([t["shard0"], t["shard1"]], axis=1)},
        lambda r, t: {
            "c_attn": np.concatenate(
                [
                    np.split(t[s], 3, axis=1)[part]
                    for part in range(3)
                    for s in ("shard0", "shard1")
                ],
                axis=1,
            )
        },
        {"shard0": (4, 6), "shard1": (4, 6)},
        1,
    ),
    Fault(
        "huggingface/transformers#24381: layers of the second pipeline stage without their offset",
        lambda r, t: _stage([0, 1])(t),
        lambda r, t: _stage([2 * r, 2 * r + 1])(t),
        {"layers": (4, 3)},
        2,
    ),
    Fault(
        "NVIDIA/Megatron-LM#1584: offsets of stages as if the first had its own count",
        lambda r, t: _stage([[0, 1], [1, 2], [3, 4]][r])(t),
        lambda r, t: _stage([[0, 1], [2, 3], [4]][r] + [4] * (r == 2))(t),
        {"layers": (5, 3)},
        3,
    ),
    Fault(
        "pytorch/pytorch#129229: FSDP on TP put together in the order of the mesh",
        lambda r, t: _two_levels(r, t["w"], 0, 1),
        lambda r, t: _two_levels(r, t["w"], 1, 0),
        {"w": (8, 4)},
        4,
    ),
    Fault(
        "vllm-project/vllm#52997: offsets of block scales rounded up",
        lambda r, t: {"s": t["s"][-(-192 * r // 128) : -(-192 * r // 128) + 2]},
        lambda r, t: {"s": t["s"][192 * r // 128 : 192 * r // 128 + 2]},
        {"s": (6, 2)},
        4,
    ),
    Fault(
        "vllm-project/vllm#23745: experts loaded in order, and mapped round robin",
        lambda r, t: {"w": t["w"][4 * r : 4 * r + 4]},
        lambda r, t: {"w": t["w"][r::2]},
        {"w": (8, 3, 2)},
        2,
    ),
    Fault(
        "vllm-project/vllm#41412: a redundant expert's slot that nothing is loaded into",
        lambda r, t: {"w": np.concatenate([t["w"][2 * r : 2 * r + 2], np.zeros((1, 3, 2))])},
        lambda r, t: {"w": np.concatenate([t["w"][2 * r : 2 * r + 2], t["w"][:1]])},
        {"w": (4, 3, 2)},
        2,
    ),
    Fault(
        "verl-project/verl#7610: replicated buffers concatenated over ranks",
        lambda r, t: {"scale": np.concatenate([t["scale"]] * 2)},
        lambda r, t: {"scale": t["scale"]},
        {"scale": (3,)},
        2,
    ),
    Fault(
        "NVIDIA-NeMo/Megatron-Bridge#5353: a vocabulary padded once more by the number of ranks",
        lambda r, t: {"w": _cut(_padded(t["w"], 24), r, 2)},
        lambda r, t: {"w": _cut(_padded(t["w"], 12), r, 2)},
        {"w": (10, 2)},
        2,
    ),
    Fault(
        "vllm-project/vllm#20843: the head padded to another multiple than the embedding",
        lambda r, t: {"w": _padded(t["w"], 16)[4 * r : 4 * r + 4]},
        lambda r, t: {"w": _padded(t["w"], 12)[3 * r : 3 * r + 3]},
        {"w": (10, 2)},
        4,
    ),
    Fault(
        "nvidia-cosmos/cosmos-rl#478: experts exported with their dimensions swapped",
        lambda r, t: {"down": t["down"]},
        lambda r, t: {"down": t["down"].transpose(0, 2, 1)},
        {"down": (2, 4, 4)},
        1,
    ),
    Fault(
        "nntile/nntile#402: the output weight reshaped by heads along the wrong dimension",
        lambda r, t: {"o": t["o"].reshape(2, 3, 6).transpose(1, 0, 2)},
        lambda r, t: {"o": t["o"].reshape(6, 2, 3).transpose(2, 1, 0)},
        {"o": (6, 6)},
        1,
    ),
    Fault(
        "ModelTC/LightX2V#1453: a column-parallel bias that is not cut",
        lambda r, t: {"w": _cut(t["w"], r, 2), "b": t["b"]},
        lambda r, t: {"w": _cut(t["w"], r, 2), "b": _cut(t["b"], r, 2)},
        {"w": (8, 4), "b": (8,)},
        2,
    ),
    Fault(
        "PaddlePaddle/FastDeploy#5247: a row-parallel bias that is added on every rank, undivided",
        lambda r, t: {"b": t["b"]},
        lambda r, t: {"b": t["b"] / 2},
        {"b": (8,)},
        2,
    ),
    Fault(
        "NVIDIA-NeMo/Megatron-Bridge#2013: an in_proj of sections cut as one",
        lambda r, t: {"in_proj": _cut(np.concatenate([*t.values()]), r, 2)},
        lambda r, t: {"in_proj": np.concatenate([_cut(each, r, 2) for each in t.values()])},
        {"z": (8, 3), "x": (8, 3), "b": (2, 3), "c": (2, 3), "dt": (4, 3)},
        2,
    ),
    Fault(
        "zhuzilin/ring-flash-attention#2: a sequence in stripes where zigzag is expected",
        lambda r, t: {"x": t["x"][r::4]},
        lambda r, t: {"x": np.concatenate([np.split(t["x"], 8)[place] for place in (r, 7 - r)])},
        {"x": (16, 3)},
        4,
    ),
)

NAMED: dict[str, tuple[int, str]] = {
    "sgl-project/sglang#23744": (4, "k rows 0 to 2 of rank 1 hold k rows 2 to 4 (qkv rows 4 to 6)"),
    "NVIDIA-NeMo/RL#2802": (
        5,
        "k rows 0 to 2 of rank 0 hold q rows 8 to 10 (linear_qkv rows 8 to 10)",
    ),
    "sgl-project/sglang#15432": (
        2,
        "up rows 0 to 4 of rank 0 hold gate rows 4 to 8 (w13 rows 4 to 8)",
    ),
    "sgl-project/sglang#32430": (
        4,
        "up rows 0 to 4 of rank 0 hold gate rows 0 to 4 (w13 rows 0 to 4)",
    ),
    "ggml-org/llama.cpp#3364": (
        4,
        "k rows 4 to 7 by 2 of rank 0 hold k rows 1 to 4 by 2 (k rows 2 to 4)",
    ),
    "vllm-project/vllm-gguf-plugin#103": (
        2,
        "gate rows 4 to 8 of rank 1 hold gate rows 0 to 4 (w13 rows 0 to 4)",
    ),
    "BlackSamorez/tensor_parallel#103": (
        2,
        "c_attn columns 0, 1, 4, 5, 8, 9 of rank 0 hold c_attn columns 0 to 6 (c_attn rows 0 to 4)",
    ),
    "microsoft/LMOps#106": (
        4,
        "shard1 columns 0 to 2 of rank 0 hold shard0 columns 2 to 4 (c_attn columns 2 to 4)",
    ),
    "huggingface/transformers#24381": (
        1,
        "layers rows 2 to 4 of rank 1 hold layers rows 0 to 2 (layers rows 0 to 2)",
    ),
    "NVIDIA/Megatron-LM#1584": (
        2,
        "layers rows 2 to 4 of rank 1 hold layers rows 1 to 3 (layers rows 0 to 2)",
    ),
    "pytorch/pytorch#129229": (2, "w rows 4 to 6 of rank 1 hold w rows 2 to 4 (w rows 0 to 2)"),
    "vllm-project/vllm#52997": (3, "s rows 1 to 3 of rank 1 hold s rows 2 to 4 (s rows 0 to 2)"),
    "vllm-project/vllm#23745": (6, "w rows 2 to 3 of rank 0 hold w rows 1 to 2 (w rows 1 to 2)"),
    "vllm-project/vllm#41412": (2, "w rows 0 to 1 of rank 0 hold padding (w rows 2 to 3)"),
    "verl-project/verl#7610": (2, "scale of rank 0 has shape (6,), expected (3,)"),
    "NVIDIA-NeMo/Megatron-Bridge#5353": (3, "w of rank 0 has shape (12, 2), expected (6, 2)"),
    "vllm-project/vllm#20843": (8, "w of rank 0 has shape (4, 2), expected (3, 2)"),
    "nvidia-cosmos/cosmos-rl#478": (
        1,
        "down rows 0 to 2 of rank 0 hold the same with dimensions in a different order "
        "(down rows 0 to 2)",
    ),
    "nntile/nntile#402": (
        1,
        "o rows 0 to 6 of rank 0 hold the same with dimensions in a different order "
        "(o rows 0 to 3)",
    ),
    "ModelTC/LightX2V#1453": (3, "b of rank 0 has shape (8,), expected (4,)"),
    "PaddlePaddle/FastDeploy#5247": (
        2,
        "b elements 0 to 8 times 0.5 of rank 0 hold b elements 0 to 8 (b elements 0 to 8)",
    ),
    "NVIDIA-NeMo/Megatron-Bridge#2013": (
        9,
        "x rows 0 to 4 of rank 0 hold z rows 4 to 8 (in_proj rows 4 to 8)",
    ),
    "zhuzilin/ring-flash-attention#2": (
        12,
        "x rows 1 to 2 of rank 0 hold x rows 4 to 5 (x rows 1 to 2)",
    ),
}
"""Of each thread how many differences there are, and the first."""
