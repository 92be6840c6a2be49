"""Small models of Megatron-core on a CPU: their settings, and what their layers are made of.

Transformer Engine needs a GPU, so that layers are those of Megatron-core's local specs. Some
classes here stand in for parts that need a GPU or another package: each has the parameters, and no
kernel. Which rank has which rows of a parameter is Megatron-core's own code everywhere. Values of a
new model are never read.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from megatron.core.fusions.fused_bias_dropout import get_bias_dropout_add
from megatron.core.models.backends import LocalSpecProvider
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer import multi_latent_attention as latent
from megatron.core.transformer.identity_op import IdentityOp
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.torch_norm import WrappedTorchNorm
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig

from bench.layer_pieces import Sizes

LATENT = "DeepSeek V3"
EXPERTS_APART = ("GPT-OSS",)
"""Architectures whose experts Megatron-core cannot cut along their rows: those with biases."""

Settings = dict[str, Any]


def settings(name: str, s: Sizes, ranks: int) -> Settings:
    """Return the settings of a model of one layer with tensor parallelism."""
    plain, apart = name == "GPT-NeoX", name in EXPERTS_APART
    found: Settings = {
        "num_layers": 1,
        "hidden_size": s.width,
        "num_attention_heads": s.heads,
        "kv_channels": s.head,
        "num_query_groups": s.groups,
        "ffn_hidden_size": s.inner,
        "gated_linear_unit": not plain,
        "add_bias_linear": plain or apart,
        "normalization": "LayerNorm" if plain else "RMSNorm",
        "qk_layernorm": name.startswith(("Qwen 3", "Gemma 3")) or name == LATENT,
        "use_cpu_initialization": True,
        "tensor_model_parallel_size": ranks,
        "expert_tensor_parallel_size": 1 if apart else ranks,
        "expert_model_parallel_size": ranks if apart else 1,
    }
    if s.experts:
        shared = s.inner if name in (LATENT, "DeltaNet hybrid") else None
        found |= {
            "num_moe_experts": s.experts,
            "moe_ffn_hidden_size": s.inner,
            "moe_shared_expert_intermediate_size": shared,
        }
    return found | _MORE.get(name, lambda s: {})(s)


_MORE: dict[str, Callable[[Sizes], Settings]] = {
    LATENT: lambda s: {
        "multi_latent_attention": True,
        "q_lora_rank": s.latent[0],
        "kv_lora_rank": s.latent[1],
        "qk_head_dim": s.head,
        "qk_pos_emb_head_dim": s.head // 2,
        "v_head_dim": s.head,
        "rope_type": "rope",
    },
    "GPT-OSS": lambda s: {"softmax_type": "learnable"},
    "Mamba 2": lambda s: {
        "ffn_hidden_size": s.width,
        "mamba_num_heads": s.heads,
        "mamba_head_dim": s.head,
        "mamba_num_groups": s.groups,
        "mamba_state_dim": s.state,
    },
    "DeltaNet hybrid": lambda s: {
        "experimental_attention_variant": "gated_delta_net",
        "linear_attention_freq": 1,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": s.state,
        "linear_value_head_dim": s.state,
        "linear_num_key_heads": s.groups,
        "linear_num_value_heads": 2 * s.groups,
        "activation_func": torch.nn.functional.silu,
    },
}


def built(name: str, how: Settings, rows: int) -> torch.nn.Module:
    """Return a model with these settings and so many rows of its embedding."""
    ends = {"vocab_size": rows, "max_sequence_length": 64}
    config = (MLATransformerConfig if name == LATENT else TransformerConfig)(**how)
    if name == "Mamba 2":
        from megatron.core.models.mamba import MambaModel

        return MambaModel(config, _mamba_stack(), post_process=False, **ends)
    if name == "T5":
        from megatron.core.models.T5 import T5Model
        from megatron.core.models.T5.t5_spec import encoder_model_with_local_spec

        encoder = TransformerBlockSubmodules([encoder_model_with_local_spec()])
        alone = {"add_decoder": False, "post_process": False}
        how = {"position_embedding_type": "relative", **alone, **ends}
        return T5Model(config, config, encoder, None, **how)
    return GPTModel(config, _layer(name, how), position_embedding_type="rope", **ends)


def _layer(name: str, how: Settings) -> ModuleSpec:
    """Return what a decoder's layer is made of."""
    spec = get_gpt_layer_local_spec(
        num_experts=how.get("num_moe_experts"),
        qk_layernorm=how["qk_layernorm"],
        multi_latent_attention=name == LATENT,
        normalization=how["normalization"],
    )
    parts = spec.submodules
    if name == LATENT:  # plain attention takes no widths of heads
        latent.HAVE_TE, latent.TELinear = False, WholeLinear
        parts.self_attention.submodules.core_attention = IdentityOp
        parts.self_attention.submodules.linear_q_down_proj = WholeLinear
        parts.self_attention.submodules.linear_kv_down_proj = WholeLinear
    if name == "Gemma 3":
        parts.self_attention.submodules.linear_proj = RowsAndNorm
        parts.mlp.submodules.linear_fc2 = RowsAndNorm
    if name == "DeltaNet hybrid":
        parts.self_attention = _delta_net()
    return spec


class WholeLinear(torch.nn.Linear):
    """The linear layer of Transformer Engine, where Megatron-core has it on every rank."""

    def __init__(self, rows: int, columns: int, *, parallel_mode: str, **more: Any) -> None:
        if parallel_mode != "duplicated" or more["tp_group"] is not None:
            raise NotImplementedError(f"parallel_mode={parallel_mode!r}")
        super().__init__(rows, columns, bias=more["bias"])


class RowsAndNorm(RowParallelLinear):  # type: ignore[misc]
    """A linear layer with a norm after it, which Gemma 3 has twice.

    Megatron-core has no such layer; models on it add the norm to its linear layer, as here.
    """

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.post_layernorm = WrappedTorchNorm(more["config"], more["config"].hidden_size)


def _no_tracker() -> Any:
    """Return what forks no generator of a GPU."""
    return SimpleNamespace(fork=contextlib.nullcontext)


def _delta_net() -> ModuleSpec:
    """Return a gated DeltaNet of local linear layers, without flash-linear-attention's kernels."""
    import megatron.core.ssm.gated_delta_net as ssm

    ssm.HAVE_FLA, ssm.get_cuda_rng_tracker = True, _no_tracker
    parts = ssm.GatedDeltaNetSubmodules(
        in_proj=ColumnParallelLinear,
        out_norm=LocalSpecProvider().layer_norm(rms_norm=True),
        out_proj=RowParallelLinear,
    )
    return ModuleSpec(ssm.GatedDeltaNet, submodules=parts)


class GatedNorm(torch.nn.Module):
    """The weight of the gated norm of mamba-ssm, without its kernel."""

    def __init__(self, width: int, **more: Any) -> None:
        super().__init__()
        del more
        self.weight = torch.nn.Parameter(torch.ones(width))


def _mamba_stack() -> ModuleSpec:
    """Return a stack of Mamba 2 layers of local linear layers."""
    _stand_in_for_mamba_ssm()
    import megatron.core.ssm.mamba_mixer as ssm
    from megatron.core.ssm.mamba_block import MambaStack, MambaStackSubmodules
    from megatron.core.ssm.mamba_layer import MambaLayer, MambaLayerSubmodules

    ssm.get_cuda_rng_tracker = _no_tracker
    linear = ssm.MambaMixerSubmodules(in_proj=ColumnParallelLinear, out_proj=RowParallelLinear)
    parts = MambaLayerSubmodules(
        norm=LocalSpecProvider().layer_norm(rms_norm=True),
        mixer=ModuleSpec(ssm.MambaMixer, submodules=linear),
        mamba_bda=get_bias_dropout_add,
    )
    layer = ModuleSpec(MambaLayer, submodules=parts)
    return ModuleSpec(MambaStack, submodules=MambaStackSubmodules(mamba_layer=layer))


def _stand_in_for_mamba_ssm() -> None:
    """Let Megatron-core import mamba-ssm, which no machine without CUDA can build."""
    for name in ("", ".ops", ".ops.triton"):
        sys.modules.setdefault(f"mamba_ssm{name}", ModuleType(f"mamba_ssm{name}"))
    for name, inside in (
        ("selective_state_update", ("selective_state_update",)),
        ("layernorm_gated", ("RMSNorm",)),
        ("ssd_combined", ("mamba_chunk_scan_combined", "mamba_split_conv1d_scan_combined")),
    ):
        module = ModuleType(f"mamba_ssm.ops.triton.{name}")
        for each in inside:
            setattr(module, each, GatedNorm if each == "RMSNorm" else None)
        sys.modules.setdefault(module.__name__, module)
