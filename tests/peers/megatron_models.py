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
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.transformer import multi_latent_attention as latent
from megatron.core.transformer.identity_op import IdentityOp
from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig
from torch.testing._internal.distributed.fake_pg import FakeStore

from bench.layer_pieces import Sizes

Tensors = dict[str, Any]

MODELS = ("Llama 3", "Qwen 3", "Qwen 3 MoE", "Mixtral", "DeepSeek V3", "Phi 3", "GPT-NeoX")
"""Architectures of which local layers of Megatron-core run without a GPU."""
_LATENT = "DeepSeek V3"


def _group(rank: int, ranks: int) -> None:
    if dist.is_initialized():
        parallel_state.destroy_model_parallel()
        dist.destroy_process_group()
    dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=ranks,
        expert_tensor_parallel_size=ranks,
        create_gloo_process_groups=False,
    )


@lru_cache(maxsize=2)
def model(name: str, rank: int, ranks: int) -> GPTModel:
    """Return a small model of an architecture, as a rank has it."""
    s = small(name)
    _group(rank, ranks)
    plain = name == "GPT-NeoX"
    how: dict[str, Any] = {
        "num_layers": 1,
        "hidden_size": s.width,
        "num_attention_heads": s.heads,
        "kv_channels": s.head,
        "num_query_groups": s.groups,
        "ffn_hidden_size": s.inner,
        "gated_linear_unit": not plain,
        "add_bias_linear": plain,
        "normalization": "LayerNorm" if plain else "RMSNorm",
        "qk_layernorm": name.startswith("Qwen 3") or name == _LATENT,
        "use_cpu_initialization": True,
        "tensor_model_parallel_size": ranks,
        "expert_tensor_parallel_size": ranks,
    }
    if s.experts:
        shared = s.inner if name == _LATENT else None
        how |= {
            "num_moe_experts": s.experts,
            "moe_ffn_hidden_size": s.inner,
            "moe_shared_expert_intermediate_size": shared,
        }
    kind = TransformerConfig
    if name == _LATENT:
        kind = MLATransformerConfig
        how |= {
            "multi_latent_attention": True,
            "q_lora_rank": s.latent[0],
            "kv_lora_rank": s.latent[1],
            "qk_head_dim": s.head,
            "qk_pos_emb_head_dim": s.head // 2,
            "v_head_dim": s.head,
            "rope_type": "rope",
        }
    spec = get_gpt_layer_local_spec(
        num_experts=s.experts or None,
        qk_layernorm=how["qk_layernorm"],
        multi_latent_attention=name == _LATENT,
        normalization=how["normalization"],
    )
    if name == _LATENT:  # plain attention takes no widths of heads
        spec.submodules.self_attention.submodules.core_attention = IdentityOp
        latent.HAVE_TE = False
    rows = -(-s.vocabulary // (128 * ranks)) * 128 * ranks
    with patch.object(torch.cuda, "current_device", lambda: "cpu"):  # of rotary embeddings
        return GPTModel(
            kind(**how),
            spec,
            vocab_size=rows,
            max_sequence_length=64,
            share_embeddings_and_output_weights=False,
            position_embedding_type="rope",
        )


@lru_cache
def _rows(name: str) -> tuple[torch.Tensor, ...]:
    """Return the rows of the whole `linear_qkv` that attention reads as q, as k and as v."""
    attention = model(name, 0, 1).decoder.layers[0].self_attention
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


def _whole(name: str, s: Sizes, t: Tensors) -> Tensors:
    """Return whole weights by the keys of a Megatron checkpoint."""
    found = {}
    for end in ("", ".bias"):
        if f"q{end}" in t and name != _LATENT:
            rows = _rows(name)
            parts = [t[f"{each}{end}"] for each in "qkv"]
            whole = torch.empty(sum(map(len, rows)), *parts[0].shape[1:], dtype=parts[0].dtype)
            for where, part in zip(rows, parts, strict=True):
                whole[where] = part
            found[f"self_attention.linear_qkv{end or '.weight'}"] = whole
    for tensor, key in _KEYS.items():
        _, _, end = tensor.partition(".")
        if tensor in t:
            found[f"{key}.{end or 'weight'}"] = t[tensor]
    for tensor, keys in _NORMS.items():  # with or without the names that fused layers give them
        for end in ("weight", "bias"):
            if tensor + ".bias" * (end == "bias") in t:
                found |= {f"{key}{end}": t[tensor + ".bias" * (end == "bias")] for key in keys}
    if "gate" in t:
        found["mlp.linear_fc1.weight"] = torch.cat([t["gate"], t["up"]])
    elif "up" in t:
        found["mlp.linear_fc1.weight"] = t["up"]
    if "shared_gate" in t:
        both = torch.cat([t["shared_gate"], t["shared_up"]])
        found["mlp.shared_experts.linear_fc1.weight"] = both
    if "e_gate" in t:
        found["mlp.experts.experts.linear_fc1.weight"] = torch.cat([t["e_gate"], t["e_up"]], dim=1)
        found["mlp.experts.experts.linear_fc2.weight"] = t["e_down"]
    return found


_NORMS = {
    "input_norm": ("input_layernorm.", "self_attention.linear_qkv.layer_norm_"),
    "post_norm": ("pre_mlp_layernorm.", "mlp.linear_fc1.layer_norm_"),
}
_KEYS = {
    "embed": "embedding.word_embeddings",
    "o": "self_attention.linear_proj",
    "o.bias": "self_attention.linear_proj",
    "q_norm": "self_attention.q_layernorm",
    "k_norm": "self_attention.k_layernorm",
    "q_a": "self_attention.linear_q_down_proj",
    "q_b": "self_attention.linear_q_up_proj",
    "kv_a": "self_attention.linear_kv_down_proj",
    "kv_b": "self_attention.linear_kv_up_proj",
    "q_a_norm": "self_attention.q_layernorm",
    "kv_a_norm": "self_attention.kv_layernorm",
    "up.bias": "mlp.linear_fc1",
    "down": "mlp.linear_fc2",
    "down.bias": "mlp.linear_fc2",
    "shared_down": "mlp.shared_experts.linear_fc2",
    "router": "mlp.router",
}
NAMES = {
    "input_layernorm": "input_norm",
    "pre_mlp_layernorm": "post_norm",
    "mlp.router": "router",
    "mlp.shared_experts.linear_fc1": "shared_linear_fc1",
    "mlp.shared_experts.linear_fc2": "shared_linear_fc2",
}


def _filled(sharded: Any, whole: Tensors) -> torch.Tensor:
    """Return what a rank has of a whole weight, as a sharded tensor says."""
    if isinstance(sharded, ShardedTensorFactory):
        return sharded.merge_fn([_filled(each, whole) for each in sharded.build()])
    key = re.sub(r"^decoder\.layers\.(0\.)?", "", sharded.key)
    shape = sharded.global_shape
    values = whole[key]
    if key.startswith("embedding"):  # rows of padding
        values = torch.cat([values, values.new_zeros(shape[0] - len(values), values.shape[1])])
    return values.reshape(shape)[sharded.global_slice()].reshape(sharded.local_shape)


def load(name: str, rank: int, ranks: int, tensors: Tensors) -> Tensors:
    """Return the parameters of a rank of a whole checkpoint, experts as one buffer."""
    whole = _whole(name, small(name), tensors)
    built = model(name, rank, ranks)
    found: Tensors = {}
    for key, each in built.sharded_state_dict().items():
        if not isinstance(each, ShardedTensor | ShardedTensorFactory):
            continue
        short = re.sub(r"^(decoder\.layers\.0|embedding)\.", "", key).removesuffix(".weight")
        if short.startswith(("decoder.final", "output_layer")):
            continue
        held = _filled(each, whole)
        expert = re.fullmatch(r"mlp\.experts\.local_experts\.\d+\.(linear_fc\d)", short)
        if expert:
            found.setdefault(f"experts.{expert[1]}", []).append(held)
            continue
        base, dot, _ = short.partition(".bias")
        middle = "a_" if name == _LATENT else ""
        heads = {f"self_attention.{x}_layernorm": f"{x}_{middle}norm" for x in ("q", "k", "kv")}
        names = {**NAMES, **heads}
        if name == "GPT-NeoX":
            names |= {"mlp.linear_fc1": "up", "mlp.linear_fc2": "down"}
        found[names.get(base, base.rpartition(".")[2]) + dot] = held
    return {key: torch.stack(e) if isinstance(e, list) else e for key, e in found.items()}
