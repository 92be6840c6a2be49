"""The self-check of emitted modules: what is sent is what is expected, and it arrives."""

import math
import os
from collections import Counter

import torch

from .boxes import ranges, spread_text, volume
from .torch_processes import Wire
from .torch_tensors import part
from .triton_check import followed, miscopied

# More elements than these are not moved.
FEW = 2**18


def self_check(processes):
    """Prove, without data: shards tile their tensors; what all senders send is what all receivers
    expect, and fills every target shard; so does what the kernels copy, from where it is to where
    it belongs. Then move numbered elements, if they are few, by the kernel and packed as for an
    exchange. Exits with what is wrong."""
    moves = dict(zip(processes.names, processes.moves, strict=True))
    for name, move in moves.items():
        shape = move.shape or (1,)
        sides = ("source", move.exchange.source), ("target", move.exchange.target)
        faults = [_untiled(side, shape, said) for said, side in sides]
        fault = "".join(faults) or move.exchange.fault() or miscopied(move)
        if fault:
            raise SystemExit(_said(name, fault))
    exchange = processes.exchange
    copied = spread_text(len(exchange.target.ids), min(map(followed, processes.moves)))
    proved = f"what is sent is what is expected, and fills every target shard{exchange.proved()}"
    proved += f"; kernels copy just that{copied}"
    elements = sum(math.prod(move.shape) for move in moves.values())
    if elements > FEW:
        return f"{proved} ({elements} elements, none moved)"
    for turn in range(max(-(-bits // size) for size, bits in map(_bits, moves.values()))):
        given = {name: _shards(move, turn) for name, move in moves.items()}
        shards = [source for source, _ in given.values()]
        kernel = processes.local(shards, [None] * len(shards))
        _compare(moves, dict(zip(moves, kernel, strict=True)), given, "by the kernel")
        handed = _handed_over(moves, {name: shards for name, (shards, _) in given.items()})
        _compare(moves, handed, given, "by an exchange")
    return f"{proved}; {elements} elements moved by the kernel and by an exchange"


def _said(name, text):
    return f"{name}, {text}" if name else text


def _untiled(side, shape, said):
    """Return why the shards of a side do not tile a tensor, each in equally many replicas, or the
    empty string."""
    boxes = Counter(box for box in map(side.box, range(len(side.ids))) if volume(box))
    cuts = [sorted({*along}) for along in zip(*map(ranges, boxes), strict=True)]
    for cut, size in zip(cuts, shape, strict=True):
        ends = [0, *(high for _, high in cut)]
        if [low for low, _ in cut] != ends[:-1] or ends[-1] != size:
            return f"{said} shards do not tile the tensor"
    if len(boxes) != math.prod(map(len, cuts)) or len({*boxes.values()}) > 1:
        return f"{said} shards have different numbers of replicas"
    return ""


def _home():
    """Return where elements are moved: on a GPU if there is one and Triton does not interpret."""
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    return "cuda" if torch.cuda.is_available() and not interpreted else "cpu"


def _bits(move):
    """Return how many bits of the numbers of elements, from 1 on, one pass moves, and all have."""
    size = 1 if move.dtype == torch.bool else 8 * move.itemsize
    return size, max(math.prod(move.shape), 1).bit_length()


def _shards(move, turn):
    """Return source shards and target shards of a tensor of numbers, both by device id: of so many
    of their bits that over all turns no two elements are alike."""
    (size, bits), number = _bits(move), torch.arange(math.prod(move.shape), device=_home()) + 1
    number = number >> turn % -(-bits // size) * size
    if size == 1:
        tensor = (number & 1).bool()
    else:
        units = number.view(torch.uint8).view(-1, 8)[:, : move.itemsize]
        tensor = units.contiguous().view(-1).view(move.dtype)
    tensor, whole = tensor.view(move.shape), (0,) * (2 * max(len(move.shape), 1))
    ends = (move.exchange.source, move.source_shape), (move.exchange.target, move.target_shape)
    return [
        [
            part(tensor, whole, side.box(side.ids.index(device)))
            .clone()
            .contiguous()
            .view(shape(device))
            for device in sorted(side.ids)
        ]
        for side, shape in ends
    ]


def _handed_over(moves, given):
    """Return the target shards by name, of shards that are packed, handed over and unpacked."""
    hosts = tuple(moves.values())
    exchange = hosts[0].exchange
    home = given[next(iter(moves))][0].device
    wires = {device: Wire(hosts, device, home) for device in exchange.ranks}
    buffers = {device: wire.buffers() for device, wire in wires.items()}
    held = {device: [None] * len(hosts) for device in exchange.ranks}
    for number, shards in enumerate(given.values()):
        for device, shard in zip(sorted(exchange.source.ids), shards, strict=True):
            held[device][number] = shard
    for device, wire in wires.items():
        wire.pack(held[device], buffers[device][0])
    found: dict[str, list] = {name: [] for name in moves}
    for rank, (device, wire) in enumerate(wires.items()):
        packages = [buffers[d][0].split(other.sent)[rank] for d, other in wires.items()]
        if [len(package) for package in packages] != wire.received:
            raise SystemExit(f"device {device}: gets other bytes than it expects")
        arrived = buffers[device][1].copy_(torch.cat(packages))
        outs = [host.empty(device, home) for host in hosts]
        wire.unpack(held[device], arrived, outs)
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
