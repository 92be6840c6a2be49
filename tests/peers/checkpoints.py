"""Small checkpoints of the architectures of `bench/layers.py`, with Hugging Face's names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bench.layer_pieces import Sizes
from bench.layers import RECIPES

Tensors = dict[str, Any]

EQUAL_WIDTH = ("Phi 3", "GPT-NeoX")
"""Architectures whose heads are as wide as the residual stream together."""


def small(name: str) -> Sizes:
    """Return small sizes of an architecture, with as many heads and groups, that its config takes;
    vLLM takes no more devices than experts."""
    real = RECIPES[name].sizes
    sizes = real.small()
    width = sizes.heads * (sizes.head if name in EQUAL_WIDTH else 1)
    rows, experts = sizes.vocabulary - 7 * 1024, min(real.experts, 16)
    return replace(sizes, width=width, vocabulary=rows, experts=experts)


def config(name: str, s: Sizes) -> dict[str, Any]:
    """Return the config.json of one layer of an architecture."""
    kind, model, more = _CONFIGS[name](s)
    return {
        "model_type": kind,
        "architectures": [model],
        "hidden_size": s.width,
        "num_attention_heads": s.heads,
        "num_key_value_heads": s.groups,
        "head_dim": s.head,
        "intermediate_size": s.inner,
        "vocab_size": s.vocabulary,
        "num_hidden_layers": 1,
        "tie_word_embeddings": False,
        "max_position_embeddings": 64,
        "dtype": "float32",
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 2,
        **more,
    }


def _moe(s: Sizes, **more: Any) -> dict[str, Any]:
    return {
        "num_experts": s.experts,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": s.inner,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "norm_topk_prob": True,
        **more,
    }


_CONFIGS: dict[str, Any] = {
    "Llama 3": lambda s: ("llama", "LlamaForCausalLM", {}),
    "Qwen 3": lambda s: ("qwen3", "Qwen3ForCausalLM", {}),
    "Qwen 3 MoE": lambda s: ("qwen3_moe", "Qwen3MoeForCausalLM", _moe(s)),
    "Mixtral": lambda s: (
        "mixtral",
        "MixtralForCausalLM",
        {"num_local_experts": s.experts, "num_experts_per_tok": 2},
    ),
    "DeepSeek V3": lambda s: (
        "deepseek_v3",
        "DeepseekV3ForCausalLM",
        {
            "q_lora_rank": s.latent[0],
            "kv_lora_rank": s.latent[1],
            "qk_nope_head_dim": s.head,
            "qk_rope_head_dim": s.head // 2,
            "v_head_dim": s.head,
            "n_routed_experts": s.experts,
            "n_shared_experts": 1,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": s.inner,
            "first_k_dense_replace": 0,
            "n_group": 1,
            "topk_group": 1,
            "topk_method": "noaux_tc",
            "scoring_func": "sigmoid",
            "norm_topk_prob": True,
            "routed_scaling_factor": 1.0,
            "moe_layer_freq": 1,
        },
    ),
    "Gemma 3": lambda s: (
        "gemma3_text",
        "Gemma3ForCausalLM",
        {
            "query_pre_attn_scalar": s.head,
            "sliding_window": 16,
            "hidden_activation": "gelu_pytorch_tanh",
        },
    ),
    "Phi 3": lambda s: ("phi3", "Phi3ForCausalLM", {}),
    "GPT-NeoX": lambda s: ("gpt_neox", "GPTNeoXForCausalLM", {}),
    "GPT-OSS": lambda s: (
        "gpt_oss",
        "GptOssForCausalLM",
        {
            "num_local_experts": s.experts,
            "num_experts_per_tok": 2,
            "sliding_window": 16,
            "layer_types": ["full_attention"],
        },
    ),
    "Mamba 2": lambda s: (
        "mamba2",
        "Mamba2ForCausalLM",
        {
            "num_heads": s.heads,
            "intermediate_size": s.heads * s.head,
            "n_groups": s.groups,
            "state_size": s.state,
            "conv_kernel": 4,
            "expand": s.heads * s.head // s.width,
            "chunk_size": 16,
            "use_conv_bias": True,
            "use_bias": False,
        },
    ),
    "DeltaNet hybrid": lambda s: (
        "qwen3_next",
        "Qwen3NextForCausalLM",
        _moe(
            s,
            shared_expert_intermediate_size=s.inner,
            linear_num_key_heads=s.groups,
            linear_num_value_heads=2 * s.groups,
            linear_key_head_dim=s.state,
            linear_value_head_dim=s.state,
            linear_conv_kernel_dim=4,
            layer_types=["linear_attention"],
        ),
    ),
    "T5": lambda s: (
        "t5",
        "T5EncoderModel",
        {
            "d_model": s.width,
            "d_kv": s.head,
            "d_ff": s.inner,
            "num_layers": 1,
            "num_heads": s.heads,
            "feed_forward_proj": "gated-gelu",
            "is_gated_act": True,
        },
    ),
}


def checkpoint(name: str, t: Tensors) -> Tensors:
    """Return the tensors of a checkpoint, by their names at Hugging Face; `t`: the logical ones."""
    found: Tensors = {}
    made = _WHOLE.get(name, {})
    for to, of in made.items():
        found[to] = of(t)
    for tensor, values in t.items():
        if tensor.startswith("e_"):
            own = ("w1", "w3", "w2") if name == "Mixtral" else ("gate_proj", "up_proj", "down_proj")
            end = dict(zip(("e_gate", "e_up", "e_down"), own, strict=True))[tensor]
            at = "block_sparse_moe" if name == "Mixtral" else "mlp"
            for number, expert in enumerate(values):
                found[f"model.layers.0.{at}.experts.{number}.{end}.weight"] = expert
            continue
        base, _, end = tensor.partition(".")
        place = {**_PLACES, **_OTHER_PLACES.get(name, {})}.get(base)
        if place is not None:
            found[place if place.endswith("sinks") else f"{place}.{end or 'weight'}"] = values
    return found


_LAYER = "model.layers.0"
_PLACES: dict[str, str | None] = {
    "embed": "model.embed_tokens",
    **{each: f"{_LAYER}.self_attn.{each}_proj" for each in ("q", "k", "v", "o", "q_a", "q_b")},
    "kv_a": f"{_LAYER}.self_attn.kv_a_proj_with_mqa",
    "kv_b": f"{_LAYER}.self_attn.kv_b_proj",
    "q_a_norm": f"{_LAYER}.self_attn.q_a_layernorm",
    "kv_a_norm": f"{_LAYER}.self_attn.kv_a_layernorm",
    "q_norm": f"{_LAYER}.self_attn.q_norm",
    "k_norm": f"{_LAYER}.self_attn.k_norm",
    **{each: f"{_LAYER}.mlp.{each}_proj" for each in ("gate", "up", "down")},
    **{f"shared_{x}": f"{_LAYER}.mlp.shared_experts.{x}_proj" for x in ("gate", "up", "down")},
    "router": f"{_LAYER}.mlp.gate",
    "input_norm": f"{_LAYER}.input_layernorm",
    "post_norm": f"{_LAYER}.post_attention_layernorm",
    "pre_ff": f"{_LAYER}.pre_feedforward_layernorm",
    "post_ff": f"{_LAYER}.post_feedforward_layernorm",
}
_NEOX, _MIXER, _NEXT = "gpt_neox.layers.0", "backbone.layers.0.mixer", f"{_LAYER}.linear_attn"
_T5, _FEED = "encoder.block.0.layer.0", "encoder.block.0.layer.1.DenseReluDense"
_APART: dict[str, str | None] = dict.fromkeys(("q", "k", "v"))
_OTHER_PLACES: dict[str, dict[str, str | None]] = {
    "Mixtral": {"router": f"{_LAYER}.block_sparse_moe.gate"},
    "Phi 3": {**_APART, "gate": None, "up": None},
    "GPT-NeoX": {
        **_APART,
        "embed": "gpt_neox.embed_in",
        "o": f"{_NEOX}.attention.dense",
        "up": f"{_NEOX}.mlp.dense_h_to_4h",
        "down": f"{_NEOX}.mlp.dense_4h_to_h",
        "input_norm": f"{_NEOX}.input_layernorm",
        "post_norm": f"{_NEOX}.post_attention_layernorm",
    },
    "GPT-OSS": {
        **dict.fromkeys(("gate", "up", "down")),
        "router": f"{_LAYER}.mlp.router",
        "sinks": f"{_LAYER}.self_attn.sinks",
    },
    "Mamba 2": {
        "embed": "backbone.embeddings",
        "norm": f"{_MIXER}.norm",
        "out": f"{_MIXER}.out_proj",
        "input_norm": "backbone.layers.0.norm",
    },
    "DeltaNet hybrid": {
        **{f"shared_{x}": f"{_LAYER}.mlp.shared_expert.{x}_proj" for x in ("gate", "up", "down")},
        "d_norm": f"{_NEXT}.norm",
        "d_out": f"{_NEXT}.out_proj",
    },
    "T5": {
        "embed": "shared",
        **{each: f"{_T5}.SelfAttention.{each}" for each in "qkvo"},
        "relative_attention_bias": f"{_T5}.SelfAttention.relative_attention_bias",
        **{each: f"{_FEED}.{each}" for each in ("wi_0", "wi_1", "wo")},
        "input_norm": f"{_T5}.layer_norm",
        "post_norm": "encoder.block.0.layer.1.layer_norm",
    },
}


def _joined(*names: str) -> Any:
    """Return what joins tensors along their rows."""
    import torch

    return lambda t: torch.cat([t[name] for name in names])


def _grouped(groups: int, *names: str) -> Any:
    """Return what joins tensors along their rows group by group."""
    import torch

    def made(t: Tensors) -> Any:
        rows = [t[name].reshape(groups, -1, *t[name].shape[1:]) for name in names]
        return torch.cat(rows, dim=1).reshape(-1, *t[names[0]].shape[1:])

    return made


def _turns(t: Tensors, end: str = "") -> Any:
    """Return the columns of gate and up in turn."""
    import torch

    pair = torch.stack([t[f"gate{end}"], t[f"up{end}"]], dim=-1)
    return pair.reshape(*pair.shape[:-2], -1)


_EXPERTS = f"{_LAYER}.mlp.experts"
_WHOLE: dict[str, dict[str, Any]] = {
    "Phi 3": {
        f"{_LAYER}.self_attn.qkv_proj.weight": lambda t: _joined("q", "k", "v")(t),
        f"{_LAYER}.mlp.gate_up_proj.weight": lambda t: _joined("gate", "up")(t),
    },
    "GPT-NeoX": {
        f"{_NEOX}.attention.query_key_value.weight": lambda t: _grouped(64, "q", "k", "v")(t),
        f"{_NEOX}.attention.query_key_value.bias": lambda t: _grouped(
            64, "q.bias", "k.bias", "v.bias"
        )(t),
    },
    "GPT-OSS": {
        f"{_EXPERTS}.gate_up_proj": _turns,
        f"{_EXPERTS}.gate_up_proj_bias": lambda t: _turns(t, ".bias"),
        f"{_EXPERTS}.down_proj": lambda t: t["down"],
        f"{_EXPERTS}.down_proj_bias": lambda t: t["down.bias"],
    },
    "Mamba 2": {
        f"{_MIXER}.in_proj.weight": lambda t: _joined("z", "x", "B", "C", "dt")(t),
        f"{_MIXER}.conv1d.weight": lambda t: _joined("conv_x", "conv_B", "conv_C")(t),
        f"{_MIXER}.conv1d.bias": lambda t: _joined("conv_x.bias", "conv_B.bias", "conv_C.bias")(t),
        f"{_MIXER}.dt_bias": lambda t: t["dt_bias"],
        f"{_MIXER}.D": lambda t: t["D"],
    },
    "DeltaNet hybrid": {
        f"{_NEXT}.in_proj_qkvz.weight": lambda t: _grouped(16, "dq", "dk", "dv", "dz")(t),
        f"{_NEXT}.in_proj_ba.weight": lambda t: _grouped(16, "db", "da")(t),
        f"{_NEXT}.conv1d.weight": lambda t: _joined("conv_q", "conv_k", "conv_v")(t),
        f"{_NEXT}.dt_bias": lambda t: t["dt_bias"],
    },
}
