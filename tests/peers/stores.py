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
REFUSED = {
    **{("T5", n): (ValueError, "Argument position_ids not found in the forward") for n in SERVERS},
    ("Mamba 2", 16): (AssertionError, "world size does not divide num_groups"),
    ("GPT-OSS", 16): (ZeroDivisionError, "integer modulo by zero"),
}
"""Models that vLLM 0.32 does not build on some devices, and its errors."""
CASES = [
    *(("megatron", name, TRAINERS) for name in RECIPES),
    *(("hugging_face", name, TRAINERS) for name in RECIPES),
    *(("tensor_parallel", name, 4) for name in ("Llama 3", "Qwen 3 MoE", "Mixtral")),
    *(
        ("vllm", name, devices)
        for name in RECIPES
        for devices in SERVERS
        if (name, devices) not in REFUSED
    ),
]
"""vLLM comes last: its model for code of transformers changes transformers."""


def expected(store: str, name: str, devices: int) -> sw.Stored:
    """Return a small layer as `bench/layers.py` says it, but for `PLAN`."""
    if store == "tensor_parallel":
        found = RECIPES[name].stored("hugging_face", devices, small(name))
        layouts = {buffer: PLAN.get(buffer, buffer) for buffer in found.buffers}
        return sw.Stored({"tp": devices}, found.tensors, layouts, found.dtype)
    return RECIPES[name].stored(store, devices, small(name))


def learned(store: str, name: str, devices: int) -> sw.Stored:
    """Return a small layer as it was learned."""
    said = tomllib.loads((FOLDER / f"{store}.toml").read_text())
    like = expected(store, name, devices)
    return sw.Stored(like.mesh, like.tensors, said[name][str(devices)], "bfloat16")


def loader(store: str) -> Any:
    """Return the loader of a store."""
    os.environ.update({"VLLM_TARGET_DEVICE": "cpu", "VLLM_LOGGING_LEVEL": "ERROR"})
    module, _, function = LOADERS[store].partition(":")
    return getattr(importlib.import_module(module), function)


def learn(store: str, name: str, devices: int) -> sw.Learned:
    """Learn a small layer from its loader, in this process."""
    import torch
    import torch.distributed as dist

    load = loader(store)
    like = expected(store, name, devices)

    def held(rank: int, tensors: dict[str, Any]) -> dict[str, Any]:
        found = load(name, rank, devices, tensors)
        return {buffer: found[buffer] for buffer in like.buffers}

    logical = {tensor: torch.empty(shape) for tensor, shape in like.tensors.items()}
    try:
        return sw.learn(held, logical=logical, ranks=like.mesh)
    finally:
        if dist.is_initialized():  # Megatron's, which stays for its next rank
            dist.destroy_process_group()


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
