"""Models of vLLM on a CPU, one rank at a time: what its own `load_weights` stores.

Groups are stand-ins that know the rank and how many there are. No kernel is chosen and
`process_weights_after_loading` does not run: weights are as they are loaded.
"""

from __future__ import annotations

import json
import re
import tempfile
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import vllm.distributed.parallel_state as state
import vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method as moe
from checkpoints import checkpoint, config, small
from vllm.config import DeviceConfig, ModelConfig, VllmConfig, set_current_vllm_config
from vllm.model_executor.models import registry

Tensors = dict[str, Any]

NAMES = {
    r"embed_tokens|embeddings|embedding|embed_in": "embed_tokens",
    r"(input_layernorm|(?<=\bbackbone\.layers\.0\.)norm)": "input_norm",
    r"post_attention_layernorm": "post_norm",
    r"pre_feedforward_layernorm": "pre_ff",
    r"post_feedforward_layernorm": "post_ff",
    r"q_a_layernorm": "q_a_norm",
    r"kv_a_layernorm": "kv_a_norm",
    r"mlp\.shared_experts?\.gate_up_proj": "shared_gate_up",
    r"mlp\.shared_experts?\.down_proj": "shared_down",
    r"mlp\.gate_up_proj": "gate_up",
    r"mlp\.(down_proj|dense_4h_to_h)": "down",
    r"mlp\.dense_h_to_4h": "up",
    r"attention\.dense": "o_proj",
    r".*experts\.w13": "w13",
    r".*experts\.w2": "w2",
    r"(mlp|block_sparse_moe)\.(gate|router)": "router",
    r"linear_attn\.norm": "d_norm",
}
"""What parts of names of parameters are called in `bench/layers.py`; of others, the last word."""


def _group(rank: int, size: int) -> Any:
    """Return a group of some ranks that exchanges nothing."""
    own = SimpleNamespace(size=lambda: size, rank=lambda: rank)
    found = object.__new__(state.GroupCoordinator)
    found.rank = found.local_rank = found.rank_in_group = rank
    found.world_size, found.ranks = size, [*range(size)]
    found.device_group = found.cpu_group = own
    found.unique_name, found.device = "none", torch.device("cpu")
    found.device_communicator = found.mq_broadcaster = None
    found.use_device_communicator = False
    return found


def _no_kernel(**asked: Any) -> Any:
    """Choose no kernel for experts: some run on no CPU."""
    del asked
    return moe.UnquantizedMoeBackend.TRITON, None


@lru_cache(maxsize=1)
def model(name: str, rank: int, ranks: int) -> torch.nn.Module:
    """Return a small model of an architecture, as a rank has it."""
    registry._run_in_subprocess = lambda function: function()
    moe.select_unquantized_moe_backend = _no_kernel
    for each in ("_TP", "_EP", "_WORLD"):
        setattr(state, each, _group(rank, ranks))
    for each in ("_PP", "_DP", "_DCP", "_PCP"):
        setattr(state, each, _group(0, 1))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config(name, small(name))))
        how = {"skip_tokenizer_init": True, "max_model_len": 64, "enforce_eager": True}
        found = ModelConfig(model=folder, dtype="float32", **how)
        settings = VllmConfig(model_config=found, device_config=DeviceConfig("cpu"))
        settings.parallel_config.tensor_parallel_size = ranks
        made, _ = registry.ModelRegistry.resolve_model_cls(found.architectures, found)
        with set_current_vllm_config(settings, check_compile=False):
            return made(vllm_config=settings, prefix="")


def called(parameter: str) -> str:
    """Return what `bench/layers.py` calls a parameter."""
    name = re.sub(r"[._]weight$", "", re.sub(r"(?<=w13|.w2)_bias$", ".bias", parameter))
    for pattern, to in NAMES.items():
        found, count = re.subn(rf".*\b(?:{pattern})\b(?=$|\.bias)", to, name)
        if count:
            return found
    end = ".bias" if name.endswith(".bias") else ""
    return name.removesuffix(".bias").rpartition(".")[2] + end


def load(name: str, rank: int, ranks: int, tensors: Tensors) -> Tensors:
    """Return the parameters of a rank after vLLM's `load_weights`."""
    built = model(name, rank, ranks)
    for parameter in built.parameters():
        parameter.data.zero_()
    built.load_weights(iter(checkpoint(name, tensors).items()))
    return {called(key): each.data for key, each in built.named_parameters()}
