"""The self-check of emitted modules: what is sent is what is expected, and it arrives."""

import math
import os

import torch

from .torch_processes import Wire
from .torch_tensors import part

# More elements than these are not moved.
FEW = 2**18


def self_check(reshard_local, moves):
    """Prove, without data, that what all senders send is what all receivers expect and that it
    fills every target shard: of boxes, senders and receivers; what the kernel computes plays no
    part in that. Then move numbered elements, if they are few, by the kernel and packed as for an
    exchange. `moves`: the reshards by name. Exits with what is wrong."""
    for name, move in moves.items():
        fault = move.exchange.fault()
        if fault:
            raise SystemExit(_said(name, fault))
    proved = "what is sent is what is expected, and fills every target shard"
    elements = sum(math.prod(move.shape) for move in moves.values())
    if elements > FEW:
        return f"{proved} ({elements} elements, none moved)"
    given = {name: _numbered(move) for name, move in moves.items()}
    kernel = reshard_local({name: shards for name, (shards, _) in given.items()})
    _compare(moves, kernel, given, "by the kernel")
    handed = _handed_over(moves, {name: shards for name, (shards, _) in given.items()})
    _compare(moves, handed, given, "by an exchange")
    return f"{proved}; {elements} elements moved by the kernel and by an exchange"


def _said(name, text):
    return f"{name}, {text}" if name else text


def _home():
    """Return where elements are moved: on a GPU if there is one and Triton does not interpret."""
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    return "cuda" if torch.cuda.is_available() and not interpreted else "cpu"


def _numbered(move):
    """Return source shards and target shards of a tensor of numbers, both by device id."""
    most = 2 if move.dtype == torch.bool else 113
    number = (torch.arange(math.prod(move.shape), device=_home()) % most).to(torch.uint8)
    tensor = number.repeat_interleave(move.itemsize).view(move.dtype).view(move.shape)
    whole = (0,) * (2 * max(len(move.shape), 1))
    sides = []
    for side, shape in (
        (move.exchange.source, move.source_shape),
        (move.exchange.target, move.target_shape),
    ):
        boxes = {device: side.box(side.ids.index(device)) for device in sorted(side.ids)}
        sides.append(
            [
                part(tensor, whole, box)
                .clone(memory_format=torch.contiguous_format)
                .view(shape(device))
                for device, box in boxes.items()
            ]
        )
    return sides


def _handed_over(moves, given):
    """Return the target shards by name, of shards that are packed, handed over and unpacked."""
    hosts = tuple(moves.values())
    exchange = hosts[0].exchange
    home = given[next(iter(moves))][0].device
    wires = {device: Wire(hosts, device, home) for device in exchange.ranks}
    held = {device: [None] * len(hosts) for device in exchange.ranks}
    for number, shards in enumerate(given.values()):
        for device, shard in zip(sorted(exchange.source.ids), shards, strict=True):
            held[device][number] = shard
    for device, wire in wires.items():
        wire.pack(held[device])
    found: dict[str, list] = {name: [] for name in moves}
    for rank, (device, wire) in enumerate(wires.items()):
        packages = [other.packed.split(other.sent)[rank] for other in wires.values()]
        if [len(package) for package in packages] != wire.received:
            raise SystemExit(f"device {device}: gets other bytes than it expects")
        wire.arrived.copy_(torch.cat(packages))
        outs = [host.empty(device, home) for host in hosts]
        wire.unpack(held[device], outs)
        if outs[0] is not None:
            for name, out in zip(moves, outs, strict=True):
                found[name].append(out)
    return found


def _compare(moves, results, given, how):
    for name, (_, wanted) in given.items():
        ids = sorted(moves[name].exchange.target.ids)
        for device, out, right in zip(ids, results[name], wanted, strict=True):
            if not out.view(-1).view(torch.uint8).equal(right.view(-1).view(torch.uint8)):
                raise SystemExit(_said(name, f"device {device}: wrong target shard, moved {how}"))
