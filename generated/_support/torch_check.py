"""The self-check of emitted modules: all sends match receives, and moved data is correct."""

import math
import os
from collections import Counter

import torch

from .boxes import ranges
from .gaps import volume
from .spread import at_some
from .torch_tensors import has_kernels

# The maximum number of elements that a self-check moves.
FEW = 2**18
# The number of guard bytes after each result of a kernel, and their value.
BEHIND, CANARY = 256, 0xA5


def proved(here):
    """Prove, without data, that shards tile their tensors, and that all sends match receives and
    fill every target shard. Return the facts proved; exit on a fault."""
    moves, labels = here.moves, _labels(here)
    for label, move in zip(labels, moves, strict=True):
        fault = _untiled(move, "source") or _untiled(move, "target") or move.exchange.fault()
        if fault:
            raise SystemExit(label + fault)
    most = max(len(side.ids) for side in (here.exchange.source, here.exchange.target))
    return "all sends match receives and fill every target shard" + at_some(most)


def _labels(here):
    return [f"{name}, " if name else "" for name in here.names]


def self_check(here, handed_over=None):
    """Check as in `proved`. Then move numbered elements with the kernel and, if given, with the
    function `handed_over`. Return the facts checked. Exit on a fault, or if more than `FEW`
    elements would move."""
    said, labels = proved(here), _labels(here)
    exchange, moves = here.exchange, here.moves
    elements = sum(math.prod(move.shape) for move in moves)
    if elements > FEW:
        from .not_run import not_run  # only if nothing runs

        not_run(f"{elements} elements are too many to move here; {said}")
    for turn in range(max(move.turns() for move in moves)):
        sources, targets = zip(*(_shards(move, turn) for move in moves), strict=True)
        # If kernels cannot run on the device, torch copies listed rows instead.
        runs = has_kernels(sources[0][0], moves[0].kernel)
        ways = ["the kernel" if runs else "listed rows"]
        outs, canaries = zip(*(_guarded(move, sources[0][0].device) for move in moves), strict=True)
        held = here.each(lambda move, given: move.by_position(given), sources)
        moved = [here.filled(outs, held)]
        if handed_over is not None:
            ways, moved = [*ways, "an exchange"], [*moved, handed_over(moves, sources)]
        if any((behind != CANARY).any() for each in canaries for behind in each):
            raise SystemExit("a kernel stores past the end of a target shard")
        for results, how in zip(moved, ways, strict=True):
            _compare(labels, sorted(exchange.target.ids), results, targets, how)
    return f"{said}; {elements} elements moved by {' and by '.join(ways)}"


def _untiled(move, said):
    """Return a message if the shards of a side do not tile the tensor, or differ in their number
    of replicas; else ""."""
    side, shape = getattr(move.exchange, said), move.shape or (1,)
    whole = move.exchange.held(()) if said == "source" else move.exchange.hidden
    shape = (*whole, *shape)
    boxes = Counter(box for box in map(side.box, range(len(side.ids))) if volume(box))
    cuts = [sorted({*along}) for along in zip(*map(ranges, boxes), strict=True)]
    for cut, size in zip(cuts, shape, strict=True):
        ends = [0, *(high for _, high in cut)]
        if [low for low, _ in cut] != ends[:-1] or ends[-1] != size:
            return f"{said} shards do not tile the tensor"
    if len(boxes) != math.prod(map(len, cuts)) or len({*boxes.values()}) > 1:
        return f"{said} shards have different numbers of replicas"
    return ""


def _shards(move, turn):
    """Return the source and target shards of example `turn`, both by ascending device id."""
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    home = "cuda" if torch.cuda.is_available() and not interpreted else "cpu"
    found: list[list] = []
    sides = (move.exchange.source, move.source_shape), (move.exchange.target, move.target_shape)
    before, after = move.example(turn, home)
    if move.exchange.new:
        from .torch_empty import with_empty  # imported on first use

        after = with_empty(move, after)
    for tensor, (side, shape) in zip((before, after), sides, strict=True):
        found.append([])
        for device in sorted(side.ids):
            box = side.box(side.ids.index(device))
            part = tensor[tuple(slice(*ends) for ends in ranges(box))]
            found[-1].append(part.reshape(shape(device)).clone())
    return found


def _guarded(move, home):
    """Return memory for target shards, by ascending device id, and the guard bytes after each
    shard."""
    outs, behind = [], []
    for device in sorted(move.exchange.target.ids):
        size = math.prod(move.target_shape(device)) * move.itemsize
        memory = torch.full((size + BEHIND,), CANARY, dtype=torch.uint8, device=home)
        outs.append(memory[:size].view(move.dtype).view(move.target_shape(device)))
        behind.append(memory[size:])
    return outs, behind


def _compare(labels, ids, results, wanted, how):
    """Exit at the first device with a wrong result."""
    for label, *shards in zip(labels, results, wanted, strict=True):
        for device, out, right in zip(ids, *shards, strict=True):
            if not out.view(-1).view(torch.uint8).equal(right.view(-1).view(torch.uint8)):
                raise SystemExit(f"{label}device {device}: wrong target shard, moved by {how}")
