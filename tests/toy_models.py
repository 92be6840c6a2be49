"""Toy models after Llama-3, Qwen3-MoE and DeepSeek-V3, and the tables that move them: members of
two stored layouts each, on any devices."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import shardwright as sw
from shardwright.codegen.verify.relayout_case import StoredSaid
from shardwright.ir.dtypes import itemsize
from shardwright.ir.parts import axes_by_dim
from shardwright.ir.relays import relays_of, shapes_of
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


def tables(model: list[Moved], memory_limit: int) -> dict[str, Any]:
    """What modules read of a model: a kind for each pair of layouts, a class for each position."""
    kinds: dict[str, int] = {}
    found: dict[str, Any] = {"kinds": [], "places": [], "members": [], "buckets": []}
    for each in model:
        known = repr((each.source, each.target))
        if known not in kinds:
            kinds[known] = len(found["kinds"])
            found["kinds"].append(kind_of(each.source, each.target))
        sides = each.source, each.target
        for side in sides:
            if list(side.mesh.device_ids) not in found["places"]:
                found["places"].append(list(side.mesh.device_ids))
        places = [found["places"].index(list(side.mesh.device_ids)) for side in sides]
        names = ([each.prefix + name for name in side.buffers] for side in sides)
        tensors = [each.prefix + name for name in each.source.tensors]
        member = [kinds[known], *places, 0, 1, tensors, *names]
        member[4] = pieces_of(found, member, memory_limit // 2)
        found["members"].append(member)
    found["buckets"] = buckets_of(found, memory_limit // 2)
    said = json.dumps([found["kinds"], found["members"]]).encode()
    return {"digest": hashlib.sha256(said).hexdigest()[:16], **found}


def kind_of(source: Stored, target: Stored) -> dict[str, Any]:
    """A kind, with forms and relays of buffers as they are, and of padded ones."""
    sides = (source, target)
    plain, padded = (
        {
            **dict(zip(("source", "target"), (buffers(side, wide) for side in sides), strict=True)),
            **listed(source, target, wide),
        }
        for wide in (False, True)
    )
    return {
        "dtype": source.dtype,
        "tensors": [list(shape) for shape in source.tensors.values()],
        "senders": [[position] for position in range(source.mesh.size)],
        "receivers": [[position] for position in range(target.mesh.size)],
        **plain,
        "padded": None if padded == plain else padded,
        "axes": [dict(side.mesh.axes) for side in sides],
        "specs": [
            [
                [[*each] for each in axes_by_dim(side.buffers[n], len(b.shape(0)))]
                for n, b in side.bound.items()
            ]
            for side in sides
        ],
    }


def buffers(side: Stored, wide: bool) -> list[Any]:
    """Of each buffer its layout and its shapes."""
    return [
        [str(side.buffers[name]), [list(shape) for shape in shapes_of(side, bound, wide)]]
        for name, bound in side.bound.items()
    ]


def listed(source: Stored, target: Stored, wide: bool) -> dict[str, Any]:
    """Forms and relays."""
    forms: dict[str, int] = {}
    found: dict[str, Any] = {"forms": [], "relays": []}
    senders, receivers = ([*side.mesh.device_ids] for side in (source, target))
    for relay in relays_of(source, target, padded=wide):
        form = [
            relay.source.buffer,
            [each.buffer for each in relay.targets],
            [[loop.times, *loop.steps] for loop in relay.loops],
        ]
        if str(form) not in forms:
            forms[str(form)] = len(forms)
            found["forms"].append(form)
        own = relay.sender == relay.receiver
        starts = [relay.source.start, *(each.start for each in relay.targets)]
        found["relays"].append(
            [
                -1 if own else senders.index(relay.sender),
                receivers.index(relay.receiver),
                forms[str(form)],
                *starts,
            ]
        )
    return found


def load(found: dict[str, Any], member: list[Any], pieces: int) -> dict[int, int]:
    """Most bytes of messages of a piece of a member, by device."""
    kind = found["kinds"][member[0]]
    size = itemsize(kind["dtype"])
    sums: dict[tuple[int, int], int] = {}
    for sender, receiver, form, *_ in kind["relays"]:
        if sender >= 0:
            ends = found["places"][member[1]][sender], found["places"][member[2]][receiver]
            count = math.prod(times for times, *_ in kind["forms"][form][2])
            sums[ends] = sums.get(ends, 0) + -(-count // pieces)
    loads: dict[int, int] = {}
    for ends, count in sums.items():
        for device in ends:
            loads[device] = loads.get(device, 0) + -(-count * size // 8) * 8 + 8
    return loads


def pieces_of(found: dict[str, Any], member: list[Any], most: int) -> int:
    """Into how many pieces a member is cut."""
    pieces = 1
    while max(load(found, member, pieces).values(), default=0) > most:
        pieces += 1
        assert pieces < 1000, "memory_limit is too little"
    return pieces


def buckets_of(found: dict[str, Any], most: int) -> list[int]:
    """Where buckets end among the pieces of all members."""
    ends, items = [], 0
    loads: dict[int, int] = {}
    for member in found["members"]:
        for _ in range(member[4]):
            more = load(found, member, member[4])
            if any(loads.get(device, 0) + size > most for device, size in more.items()):
                ends.append(items)
                loads = {}
            for device, size in more.items():
                loads[device] = loads.get(device, 0) + size
            items += 1
    return [*ends, items]


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
