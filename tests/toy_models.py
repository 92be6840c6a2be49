"""Toy models after Llama-3, Qwen3-MoE and DeepSeek-V3, and the tables that move them: members of
two stored layouts each, on any devices."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import shardwright as sw
from shardwright.codegen.checks.relayout_case import StoredSaid
from shardwright.ir.parts import BufferLayout, TensorPart
from shardwright.ir.stored import Stored

Held = dict[int, dict[str, np.ndarray]]
"""What devices store: by device id, by name of the buffer."""


@dataclass(frozen=True)
class Moved:
    """Tensors that are stored in one way and then in another; `prefix`: what their names begin
    with."""

    prefix: str
    source: Stored
    target: Stored


def stored(ids: Any, axes: str, shapes: Mapping[str, Any], layout: Any, dtype: str) -> Stored:
    """A stored layout on devices, `axes` as `fsdp=2,tp=2`."""
    sizes = {name: int(size) for name, size in (each.split("=") for each in axes.split(","))}
    return Stored(sw.Mesh(sizes, [*ids]), shapes, layout, dtype)


def dense(prefix: str, trainer: Any, server: Any, width: int = 16) -> Iterator[Moved]:
    """Attention and the norms of a layer, trained with FSDP and TP, served packed with TP."""
    tp, ways = max(len(trainer) // 2, 1), len(server)
    train, serve = f"fsdp={min(2, len(trainer))},tp={tp}", f"tp={ways}"
    rows = 4 * width
    qkv = {"q_proj": [rows, width], "k_proj": [width, width], "v_proj": [width, width]}
    yield Moved(
        f"{prefix}self_attn.",
        stored(trainer, train, qkv, dict.fromkeys(qkv, '[{"tp","fsdp"}, {}]'), "bfloat16"),
        stored(
            server, serve, qkv,
            {"qkv_proj": sw.stack(0, q_proj="tp", k_proj="tp", v_proj="tp")}, "bfloat16",
        ),
    )  # fmt: skip
    out = {"o_proj": [width, rows]}
    yield Moved(
        f"{prefix}self_attn.",
        stored(trainer, train, out, {"o_proj": '[{"fsdp"}, {"tp"}]'}, "bfloat16"),
        stored(server, serve, out, {"o_proj": '[{}, {"tp"}]'}, "bfloat16"),
    )
    norm = {"norm": [width + 1]}
    yield Moved(
        prefix,
        stored(trainer, train, norm, {"norm": '[{"fsdp"}]'}, "float32"),
        stored(server, serve, norm, {"norm": "[{}]"}, "float32"),
    )


def mlp(prefix: str, trainer: Any, server: Any, width: int = 16) -> Iterator[Moved]:
    """Two matrices that a server stacks."""
    rows = 3 * width
    shapes = {"gate": [rows, width], "up": [rows, width]}
    yield Moved(
        prefix,
        stored(trainer, f"fsdp={len(trainer)}", shapes, dict.fromkeys(shapes, '[{"fsdp"}, {}]'),
               "bfloat16"),
        stored(server, f"tp={len(server)}", shapes, {"gate_up": sw.stack(0, gate="tp", up="tp")},
               "bfloat16"),
    )  # fmt: skip


def llama(trainer: list[int], server: list[int], width: int = 16) -> list[Moved]:
    """Two stages of two layers."""
    half = len(trainer) // 2
    stages = [trainer[:half], trainer[half:]]
    found = []
    for layer in range(4):
        given = f"model.layers.{layer}.", stages[layer // 2], server, width
        found += [*dense(*given), *mlp(f"{given[0]}mlp.", *given[1:])]
    table, ways = {"embed": [70, width]}, len(server)
    cut = sw.cut(0, "tp", size=-(-72 // ways))
    train = stored(stages[0], f"fsdp={half}", table, {"embed": '[{"fsdp"}, {}]'}, "bfloat16")
    serve = stored(server, f"tp={ways}", table, {"embed": cut}, "bfloat16")
    return [*found, Moved("model.", train, serve)]


def experts(trainer: list[int], server: list[int], width: int = 16) -> list[Moved]:
    """After Qwen3-MoE: a layer, and experts that are on one device each, other ones afterwards."""
    found = [*dense("model.layers.0.", trainer, server, width)]
    for number in range(2 * len(trainer)):
        first, then = trainer[number % len(trainer)], server[number // 2 % len(server)]
        found += mlp(f"model.layers.0.mlp.experts.{number}.", [first], [then], width)
    return found


def latent(trainer: list[int], server: list[int], width: int = 16) -> list[Moved]:
    """After DeepSeek-V3: low ranks that devices replicate, FP8 weights with scales, experts."""
    fp8 = {"kv_b": [4 * width, width]}
    low = {"q_a": [width, 4 * width], "kv_a": [width + 2, 4 * width]}
    train, serve = f"fsdp={len(trainer)}", f"tp={len(server)}"
    found = experts(trainer, server, width)
    found.append(
        Moved(
            "model.layers.1.",
            stored(trainer, train, low, dict.fromkeys(low, '[{"fsdp"}, {}]'), "bfloat16"),
            stored(server, serve, low, {"fused_a": sw.stack(0, "q_a", "kv_a")}, "bfloat16"),
        )
    )
    found.append(
        Moved(
            "model.layers.1.",
            stored(trainer, train, fp8, {"kv_b": '[{}, {"fsdp"}]'}, "float8_e4m3fn"),
            stored(server, serve, fp8, {"kv_b": '[{"tp"}, {}]'}, "float8_e4m3fn"),
        )
    )
    return found


TOYS = {"llama": llama, "qwen": experts, "deepseek": latent}


def planned(model: list[Moved], memory_limit: int) -> sw.Sync:
    """What moves a model."""
    tensors = {
        each.prefix + name: {"shape": shape, "dtype": each.source.dtype}
        for each in model
        for name, shape in each.source.tensors.items()
    }
    sides = (rules(each.prefix, side) for each in model for side in (each.source, each.target))
    source, target = ({}, {})
    for number, found in enumerate(sides):
        (target if number % 2 else source).update(found)
    given = sw.Model(tensors), sw.Rules("a=1", source), sw.Rules("a=1", target)
    return sw.sync(*given, memory_limit=memory_limit)


def rules(prefix: str, side: Stored) -> dict[str, Any]:
    """The rules of one side of some tensors."""

    def named(part: TensorPart) -> TensorPart:
        return replace(part, tensor=prefix + part.tensor)

    found = {}
    for name, layout in side.buffers.items():
        if isinstance(layout, TensorPart):
            renamed: BufferLayout = named(layout)
        else:
            renamed = replace(layout, parts=tuple(map(named, layout.parts)))
        found[prefix + name] = {"layout": renamed, "mesh": side.mesh}
    return found


def bits(model: list[Moved], seed: int) -> tuple[Held, Held]:
    """What devices store before and after, random bits; padding before is random, after zero."""
    random = np.random.default_rng(seed)
    before: Held = {}
    after: Held = {}
    for each in model:
        shapes = each.source.tensors
        width = {"bfloat16": 16, "float32": 32, "float8_e4m3fn": 8}[each.source.dtype]
        count = sum(math.prod(shape) for shape in shapes.values())
        values = random.integers(0, 1 << width, count).astype(f"uint{width}")
        for side, held, padding in ((each.source, before, 1), (each.target, after, 0)):
            for name, by_device in StoredSaid.of(side).numbers(shapes).items():
                for device, numbers in by_device.items():
                    found = np.full(numbers.shape, padding, values.dtype)
                    found[numbers >= 0] = values[numbers[numbers >= 0]]
                    held.setdefault(device, {})[each.prefix + name] = found
    return before, after
