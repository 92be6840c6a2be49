"""The loaders of vLLM, Megatron-core and transformers that layouts are learned from, and what was
learned, which is in a file of TOML for each: `learned/vllm.toml` and so on."""

from __future__ import annotations

import importlib
import json
import os
import tomllib
from pathlib import Path
from typing import Any

from checkpoints import small

import shardwright as sw
from bench.layers import RECIPES

FOLDER = Path(__file__).parent / "learned"
SERVERS, TRAINERS = (1, 2, 4, 8, 16), 8

MEGATRON = ("Llama 3", "Qwen 3", "Qwen 3 MoE", "Mixtral", "DeepSeek V3", "Phi 3", "GPT-NeoX")
"""What local layers of Megatron-core have without a GPU: no mixers of Mamba and DeltaNet, no second
norms of Gemma 3, no experts with biases and sinks of GPT-OSS, no relative bias of T5."""

PACKAGES = {
    "vllm": "vllm",
    "megatron": "megatron.core",
    "hugging_face": "transformers",
    "tensor_parallel": "transformers",
}
LOADERS = {
    "vllm": "vllm_models:load",
    "megatron": "megatron_models:load",
    "hugging_face": "transformers_models:load",
    "tensor_parallel": "transformers_models:load_parallel",
}
PLAN = {
    "embed_tokens": "embed[{tp}]",
    **{f"{each}_proj": f"{each}[{{tp}}]" for each in "qkv"},
    "o_proj": "o[{}, {tp}]",
    "gate": "gate[{tp}]",
    "up": "up[{tp}]",
    "down": "down[{}, {tp}]",
    "gate_up_proj": "stack(1, e_gate[{}, {tp}], e_up[{}, {tp}])",
    "down_proj": "e_down[{}, {}, {tp}]",
}
"""What tensor-parallel plans of transformers cut; other parameters are whole."""
CASES = [
    *(
        ("vllm", name, devices)
        for name in RECIPES
        if name not in ("GPT-NeoX", "T5")  # vLLM 0.32 has no model of its own for them
        for devices in SERVERS
        # vLLM refuses 8 groups of Mamba 2, and kv heads of GPT-OSS, on more devices.
        if (name, devices) not in (("Mamba 2", 16), ("GPT-OSS", 16))
    ),
    *(("megatron", name, TRAINERS) for name in MEGATRON),
    *(("hugging_face", name, TRAINERS) for name in RECIPES),
    *(("tensor_parallel", name, 4) for name in ("Llama 3", "Qwen 3 MoE", "Mixtral")),
]


LOCAL = {"linear_q_down_proj": "q_a[{tp}]", "linear_kv_down_proj": "kv_a[{tp}]"}
"""What Megatron's local layers of latent attention cut, and those of Transformer Engine, which
`bench/layers.py` has and which need a GPU, do not."""


def expected(store: str, name: str, devices: int) -> sw.Stored:
    """Return a small layer as `bench/layers.py` says it, but for `LOCAL` and `PLAN`."""
    if store == "tensor_parallel":
        found = RECIPES[name].stored("hugging_face", devices, small(name))
        layouts = {buffer: PLAN.get(buffer, buffer) for buffer in found.buffers}
        return sw.Stored({"tp": devices}, found.tensors, layouts, found.dtype)
    found = RECIPES[name].stored(store, devices, small(name))
    if (store, name) != ("megatron", "DeepSeek V3"):
        return found
    return sw.Stored(found.mesh, found.tensors, {**found.buffers, **LOCAL}, found.dtype)


def learned(store: str, name: str, devices: int) -> sw.Stored:
    """Return a small layer as it was learned."""
    said = tomllib.loads((FOLDER / f"{store}.toml").read_text())
    like = expected(store, name, devices)
    return sw.Stored(like.mesh, like.tensors, said[name][str(devices)], "bfloat16")


def learn(store: str, name: str, devices: int) -> sw.Learned:
    """Learn a small layer from its loader, in this process."""
    import torch

    os.environ.update({"VLLM_TARGET_DEVICE": "cpu", "VLLM_LOGGING_LEVEL": "ERROR"})
    module, _, function = LOADERS[store].partition(":")
    load = getattr(importlib.import_module(module), function)
    like = expected(store, name, devices)

    def held(rank: int, tensors: dict[str, Any]) -> dict[str, Any]:
        found = load(name, rank, devices, tensors)
        return {buffer: found[buffer] for buffer in like.buffers}

    logical = {tensor: torch.empty(shape) for tensor, shape in like.tensors.items()}
    return sw.learn(held, logical=logical, ranks=like.mesh)


def write(store: str, name: str, devices: int, found: sw.Learned) -> None:
    """Put what was learned into the file of a store."""
    path = FOLDER / f"{store}.toml"
    said = tomllib.loads(path.read_text()) if path.exists() else {}
    said["versions"] = {key: each for key, each in found.versions.items() if key != "jax"}
    layouts = {buffer: str(each) for buffer, each in found.stored.buffers.items()}
    said.setdefault(name, {})[str(devices)] = layouts
    order = ["versions", *(each for each in RECIPES if each in said)]
    lines = [f"# What `{PACKAGES[store]}` stores of the small layers of `checkpoints.py`, learned."]
    for key in order:
        entries = said[key]
        tables = {"": entries} if key == "versions" else entries
        for table in sorted(tables, key=lambda each: int(each or 0)):
            lines += ["", f"[{json.dumps(key)}{f'.{table}' if table else ''}]"]
            pairs = tables[table].items()
            lines += [f"{json.dumps(a)} = {json.dumps(b)}" for a, b in pairs]
    FOLDER.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
