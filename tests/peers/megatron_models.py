"""Models of Megatron-core on a CPU, one rank at a time, in torch's stand-in group.

A rank's parameters are the slices of whole weights that `sharded_state_dict` says, whole weights
are in the order that attention reads them in. Megatron-core pads no vocabulary: what trains with it
passes a multiple of 128 rows a rank, and so do these models.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from checkpoints import small
from megatron.core import parallel_state
from megatron.core.dist_checkpointing.mapping import ShardedTensor, ShardedTensorFactory
from megatron_layers import LATENT, built, settings
from torch.testing._internal.distributed.fake_pg import FakeStore

Tensors = dict[str, Any]


def _group(rank: int, how: dict[str, Any]) -> None:
    if parallel_state.model_parallel_is_initialized():
        parallel_state.destroy_model_parallel()
    if dist.is_initialized():
        dist.destroy_process_group()
    ranks = how["tensor_model_parallel_size"]
    dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())
    kinds = ("tensor_model", "expert_tensor", "expert_model")
    sizes = {f"{kind}_parallel_size": how[f"{kind}_parallel_size"] for kind in kinds}
    parallel_state.initialize_model_parallel(**sizes, create_gloo_process_groups=False)


@lru_cache(maxsize=2)
def model(name: str, rank: int, ranks: int) -> torch.nn.Module:
    """Return a small model of an architecture, as a rank has it."""
    s = small(name)
    how = settings(name, s, ranks)
    _group(rank, how)
    rows = -(-s.vocabulary // (128 * ranks)) * 128 * ranks
    with patch.object(torch.cuda, "current_device", lambda: "cpu"):
        return built(name, how, rows)


@lru_cache
def _rows(name: str) -> tuple[torch.Tensor, ...]:
    """Return the rows of the whole `linear_qkv` that attention reads as q, as k and as v."""
    whole = model(name, 0, 1)
    attention = (whole.encoder if name == "T5" else whole.decoder).layers[0].self_attention
    attention.q_layernorm = attention.k_layernorm = None
    weight = attention.linear_qkv.weight.data
    weight.zero_()
    weight[:, 0] = torch.arange(weight.shape[0])
    if attention.linear_qkv.bias is not None:
        attention.linear_qkv.bias.data.zero_()
    first = torch.zeros(1, 1, weight.shape[1])
    first[..., 0] = 1
    read = attention.get_query_key_value_tensors(first, None)
    model.cache_clear()
    return tuple(each.detach().reshape(-1).long() for each in read[:3])


def _whole(name: str, t: Tensors) -> Tensors:
    """Return whole weights by the keys of a Megatron checkpoint."""
    found = {}
    for end in ("", ".bias"):
        if f"q{end}" in t and name != LATENT:
            rows = _rows(name)
            parts = [t[f"{each}{end}"] for each in "qkv"]
            whole = torch.empty(sum(map(len, rows)), *parts[0].shape[1:], dtype=parts[0].dtype)
            for where, part in zip(rows, parts, strict=True):
                whole[where] = part
            found[f"self_attention.linear_qkv{end or '.weight'}"] = whole
    keys = {**_KEYS, **_OTHER_KEYS.get(name, {})}
    norms = {**_NORMS, **_OTHER_NORMS.get(name, {})}
    parameters = _PARAMETERS.get(name, {})
    for tensor, values in t.items():
        base, _, end = tensor.partition(".")
        if tensor in parameters:
            found[parameters[tensor]] = values
        elif base in keys:
            found[f"{keys[base]}.{end or 'weight'}"] = values
        for key in norms.get(base, ()):
            found[f"{key}{end or 'weight'}"] = values
    return found | _joined(name, t)


def _joined(name: str, t: Tensors) -> Tensors:
    """Return the weights of gates and up projections as one, and those of experts."""
    found = {}
    experts = "mlp.experts.experts.linear_fc"
    if "e_gate" in t:
        found[f"{experts}1.weight"] = torch.cat([t["e_gate"], t["e_up"]], dim=1)
        found[f"{experts}2.weight"] = t["e_down"]
    if name == "GPT-OSS":  # Hugging Face has them as [in, out]
        found[f"{experts}1.weight"] = torch.cat([t["gate"].mT, t["up"].mT], dim=1)
        found[f"{experts}1.bias"] = torch.cat([t["gate.bias"], t["up.bias"]], dim=1)
        found[f"{experts}2.weight"] = t["down"].mT
        found[f"{experts}2.bias"] = t["down.bias"]
        return found
    for key, gate, up in (
        ("mlp.linear_fc1.weight", "gate", "up"),
        ("mlp.linear_fc1.weight", "wi_0", "wi_1"),
        ("mlp.shared_experts.linear_fc1.weight", "shared_gate", "shared_up"),
    ):
        if gate in t:
            found[key] = torch.cat([t[gate], t[up]])
    return found


_NORMS = {  # with or without the names that fused layers give them
    "input_norm": ("input_layernorm.", "self_attention.linear_qkv.layer_norm_"),
    "post_norm": ("pre_mlp_layernorm.", "mlp.linear_fc1.layer_norm_"),
}
_OTHER_NORMS = {
    "Gemma 3": {
        "pre_ff": ("mlp.linear_fc1.layer_norm_",),
        "post_norm": ("self_attention.linear_proj.post_layernorm.",),
        "post_ff": ("mlp.linear_fc2.post_layernorm.",),
    },
    "Mamba 2": {"input_norm": ("norm.",)},
}
_KEYS = {
    "embed": "embedding.word_embeddings",
    "o": "self_attention.linear_proj",
    "q_norm": "self_attention.q_layernorm",
    "k_norm": "self_attention.k_layernorm",
    "q_a": "self_attention.linear_q_down_proj",
    "q_b": "self_attention.linear_q_up_proj",
    "kv_a": "self_attention.linear_kv_down_proj",
    "kv_b": "self_attention.linear_kv_up_proj",
    "q_a_norm": "self_attention.q_layernorm",
    "kv_a_norm": "self_attention.kv_layernorm",
    "up": "mlp.linear_fc1",
    "down": "mlp.linear_fc2",
    "wo": "mlp.linear_fc2",
    "shared_down": "mlp.shared_experts.linear_fc2",
    "router": "mlp.router",
    "d_norm": "self_attention.out_norm",
    "d_out": "self_attention.out_proj",
    "relative_attention_bias": "encoder_relative_pos_emb.relative_attention_bias",
}
_OTHER_KEYS = {"Mamba 2": {"norm": "mixer.norm", "out": "mixer.out_proj"}}
_PARAMETERS = {
    "GPT-OSS": {"sinks": "self_attention.core_attention.softmax_offset"},
    "Mamba 2": {
        **{each: f"mixer.in_proj.weight.{each}" for each in ("z", "x", "B", "C", "dt")},
        **{f"conv_{each}": f"mixer.conv1d.weight.{each}" for each in "xBC"},
        **{f"conv_{each}.bias": f"mixer.conv1d.bias.{each}" for each in "xBC"},
        **{each: f"mixer.{each}" for each in ("D", "dt_bias")},
    },
    "DeltaNet hybrid": {
        **{
            f"d{each[0]}": f"self_attention.in_proj.weight.{each}"
            for each in ("query", "key", "value", "z", "beta", "alpha")
        },
        **{
            f"conv_{each[0]}": f"self_attention.conv1d.weight.{each}"
            for each in ("query", "key", "value")
        },
        "dt_bias": "self_attention.dt_bias",
    },
}
"""Keys of parameters whose names do not end in weight or bias."""
NAMES = {
    "input_layernorm": "input_norm",
    "norm": "input_norm",
    "pre_mlp_layernorm": "post_norm",
    "mlp.router": "router",
    "mlp.shared_experts.linear_fc1": "shared_linear_fc1",
    "mlp.shared_experts.linear_fc2": "shared_linear_fc2",
    "self_attention.out_norm": "d_norm",
    "self_attention.core_attention.softmax_offset": "sinks",
    "self_attention.linear_proj.post_layernorm": "post_norm",
    "mlp.linear_fc2.post_layernorm": "post_ff",
}
"""What modules are called in `bench/layers.py`; others by their last word."""


def _filled(sharded: Any, whole: Tensors) -> torch.Tensor:
    """Return what a rank has of a whole weight, as a sharded tensor says."""
    if isinstance(sharded, ShardedTensorFactory):
        return sharded.merge_fn([_filled(each, whole) for each in sharded.build()])
    key = re.sub(r"^(de|en)coder\.layers\.(0\.)?", "", sharded.key)
    shape = sharded.global_shape
    values = whole[key]
    if key.startswith("embedding"):  # rows of padding
        values = torch.cat([values, values.new_zeros(shape[0] - len(values), values.shape[1])])
    return values.reshape(shape)[sharded.global_slice()].reshape(sharded.local_shape)


def _called(name: str, key: str) -> str:
    """Return what `bench/layers.py` calls the parameter of a key."""
    base, dot, _ = key.partition(".bias")
    middle = "a_" if name == LATENT else ""
    names = {**NAMES, **{f"self_attention.{x}_layernorm": f"{x}_{middle}norm" for x in ("q", "k")}}
    names["self_attention.kv_layernorm"] = "kv_a_norm"
    if name == "Gemma 3":
        names["pre_mlp_layernorm"] = "pre_ff"
    if name == "GPT-NeoX":
        names |= {"mlp.linear_fc1": "up", "mlp.linear_fc2": "down"}
    return names.get(base, base.rpartition(".")[2]) + dot


def load(name: str, rank: int, ranks: int, tensors: Tensors) -> Tensors:
    """Return the parameters of a rank of a whole checkpoint, experts as one buffer."""
    whole = _whole(name, tensors)
    found: Tensors = {}
    for key, each in model(name, rank, ranks).sharded_state_dict().items():
        if not isinstance(each, ShardedTensor | ShardedTensorFactory):
            continue
        inner = re.sub(r"^((de|en)coder\.layers\.0|embedding)\.", "", key)
        short = inner.removesuffix(".weight")
        if short.startswith(("decoder", "output_layer")) or short.endswith("A_log"):
            continue
        held = _filled(each, whole)
        expert = re.fullmatch(r"mlp\.experts\.local_experts\.\d+\.(linear_fc\d)(\.bias)?", short)
        if expert:
            found.setdefault(f"experts.{expert[1]}{expert[2] or ''}", []).append(held)
        else:
            found[_called(name, short)] = held
    return {key: torch.stack(e) if isinstance(e, list) else e for key, e in found.items()}
