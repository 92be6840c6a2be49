"""Models of transformers under FSDP2 on a CPU, one rank at a time, in torch's stand-in group."""

from __future__ import annotations

import re
from typing import Any

import torch
import torch.distributed as dist
import transformers
from checkpoints import checkpoint, config, small
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers.distributed import DistributedConfig

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

Tensors = dict[str, Any]

NAMES = {
    r"embed_tokens|embed_in|embeddings|shared": "embed_tokens",
    r"input_layernorm|backbone\.layers\.0\.norm|layer\.0\.layer_norm": "input_norm",
    r"post_attention_layernorm|layer\.1\.layer_norm": "post_norm",
    r"pre_feedforward_layernorm": "pre_ff",
    r"post_feedforward_layernorm": "post_ff",
    r"q_a_layernorm": "q_a_norm",
    r"kv_a_layernorm": "kv_a_norm",
    r"kv_a_proj_with_mqa": "kv_a_proj",
    r"mlp\.shared_experts?\.gate_proj": "shared_gate",
    r"mlp\.shared_experts?\.up_proj": "shared_up",
    r"mlp\.shared_experts?\.down_proj": "shared_down",
    r"mlp\.gate_proj": "gate",
    r"mlp\.(up_proj|dense_h_to_4h)": "up",
    r"mlp\.(down_proj|dense_4h_to_h)": "down",
    r"mlp\.gate_up_proj": "gate_up",
    r"mlp\.(gate|router)": "router",
    r"experts\.gate_up_proj": "gate_up_proj",
    r"experts\.down_proj": "down_proj",
    r"attention\.dense": "o_proj",
    r"linear_attn\.norm": "d_norm",
    r"SelfAttention\.([qkvo])": r"\1_proj",
}
"""What parts of names of parameters are called in `bench/layers.py`; of others, the last word."""


def called(parameter: str) -> str:
    """Return what `bench/layers.py` calls a parameter."""
    name = re.sub(r"\.weight$", "", re.sub(r"(?<=proj)_bias$", ".bias", parameter))
    for pattern, to in NAMES.items():
        found, count = re.subn(rf".*\b(?:{pattern})(?=$|\.bias$)", to, name)
        if count:
            return found
    end = ".bias" if name.endswith(".bias") else ""
    return name.removesuffix(".bias").rpartition(".")[2] + end


def load_parallel(name: str, rank: int, ranks: int, tensors: Tensors) -> Tensors:
    """Return the local parameters of a rank: `from_pretrained` with the model's own tensor-parallel
    plan."""
    asked = config(name, small(name))
    made = getattr(transformers, asked["architectures"][0])
    dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())
    try:
        model = made.from_pretrained(
            None,
            config=transformers.AutoConfig.for_model(**asked),
            state_dict=checkpoint(name, tensors),
            dtype=torch.float32,
            distributed_config=DistributedConfig(tp_plan="auto", tp_size=ranks),
        )
        return {called(key): each.data for key, each in model.named_parameters()}
    finally:
        dist.destroy_process_group()


def load(name: str, rank: int, ranks: int, tensors: Tensors) -> Tensors:
    """Return the local parameters of a rank: `from_pretrained`, then `fully_shard`."""
    asked = config(name, small(name))
    made = getattr(transformers, asked["architectures"][0])
    settings = transformers.AutoConfig.for_model(**asked)
    model = made.from_pretrained(
        None, config=settings, state_dict=checkpoint(name, tensors), dtype=torch.float32
    )
    dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())
    try:
        fully_shard(model, mesh=init_device_mesh("cpu", (ranks,)))
        return {called(key): each.data.to_local() for key, each in model.named_parameters()}
    finally:
        dist.destroy_process_group()
