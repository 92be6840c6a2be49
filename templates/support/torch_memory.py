"""Memory that callers share with peers. Peers read source shards and write results in place."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from .gaps import volume
from .torch_graphs import keep
from .torch_symmetric import in_group, placed, shared, symmetric
from .torch_tensors import capturing, check, table


class Push(NamedTuple):
    """The pushing of tiles. `kernel`: the kernel of the module; `between`: a function that runs
    a launch between two barriers; `tiles`: the largest number of tiles of a source shard, each
    counted once per replica."""

    kernel: Any
    between: Callable
    tiles: int

    def pushing(self, own, shards, place, device_id, programs):
        """Return a function that writes tiles to the results of other ranks once all ranks are in
        the call."""
        (move,), exchange = own.moves, own.exchange
        ranks = [exchange.ranks.index(target) for target in exchange.target.ids]
        addresses = [place.addresses[rank] for rank in ranks]
        push = self.pusher(move, shards[0], addresses, device_id, programs)
        if capturing(shards[0].device):
            keep(place)

        def run(shards, outs, group, number):
            return self.between(place, functools.partial(push, *shards, *outs), number)

        return run

    def pusher(self, move, shard, addresses, device_id, programs=None):
        """Return a function that copies tiles of a source shard to the target shards at these
        addresses. If the device holds a missing term, the function also fills its target shard."""
        exchange, launch = move.exchange, None
        positions = [exchange.source_position(device_id)]
        if "homes" in self.kernel.arg_names:
            homes = map(exchange.source_position, exchange.target.ids)
            positions.append(table(homes, shard.device))
        if shard.numel():
            tiles = move.tiles._replace(number=self.tiles)
            launch = move.launcher(self.kernel, tiles, addresses, shard, programs)
        is_empty = exchange.is_empty(exchange.target_position(device_id))

        def run(shard, out):
            if launch is not None:
                launch(shard, *positions)
            if is_empty:
                out.fill_(move.empty_value)

        return run


class SharedMemory:
    """The functions of a module that return memory shared with peers."""

    def __init__(self, host):
        self._first, self._last = host.phases[0].processes, host.phases[-1].processes

    def symmetric_source(self, group=None, shard=None):
        """Return this device's source shard in symmetric memory, to be filled and passed to
        `reshard`; None outside the source mesh. For GPUs that share memory. Every rank must make
        the first call for a group.

        With `shard`, a tensor from torch.distributed._symmetric_memory.empty on every rank, return
        that tensor: if every rank passes its own to `reshard`, peers read it in place. If ranks
        pass shards from different calls of this function, they wait for each other until the
        time-out. The memory lives as long as the group. Raises RuntimeError on every rank if any
        rank has no such memory or a wrong shard.
        """
        group, own = in_group(group), self._first
        (move,), device_id = own.moves, own.exchange.ranks[dist.get_rank(group)]

        def given():
            move.check_source(shard, device_id)
            return shard

        if shard is not None:
            return shared(group).offer(given, group)
        buffer = self.source_buffer(group, _gpu())
        if own.exchange.source_position(device_id) < 0:
            return None
        return _as(buffer, move.source_shape(device_id), move)

    def source_buffer(self, group, home):
        """Return memory that every rank can read and that fits the source shards of any device. It
        belongs to this module and is allocated once per group."""
        kept = self._first.kept(group)
        if "buffer" not in kept:
            kept["buffer"] = placed(lambda: symmetric(self._first.starts[-1], home), group)
            kept["calls"].clear()
        return kept["buffer"].held

    def symmetric_result(self, group=None, out=None):
        """Return memory for this device's target shard that the other ranks can write. If every
        rank passes it to `reshard` as `out`, ranks push tiles into it directly from their shards,
        without a copy to symmetric memory. If the shard is in symmetric memory as well, tiles are
        pulled. For GPUs that share memory. Every rank must make the first call for a group, and all
        calls with `out`, the caller's own memory, as for `symmetric_source`.

        Before the next `reshard`, finish reading the result, or start the reads on the same stream.
        Raises ValueError if terms are reduced, or if some devices are in one mesh only.
        """
        own = self._last
        (move,), target = own.moves, own.exchange.target
        if "push" not in own.features or move.reduces:
            why = "reduces partial sums" if move.reduces else "has devices in one mesh only"
            raise ValueError(f"symmetric_result: the reshard {why}: call it without out")
        group = in_group(group)
        device_id, kept = own.exchange.ranks[dist.get_rank(group)], own.kept(group)
        shape = move.target_shape(device_id)

        def given():
            check(out, shape, move.dtype, f"out of device {device_id}")
            return out

        def made():
            most = max(volume(target.box(position)) for position in range(len(target.ids)))
            return _as(symmetric(move.itemsize * most, _gpu()), shape, move)

        if out is not None:
            return kept["shared"].offer(given, group)
        if "result" not in kept:
            kept["result"] = kept["shared"].offer(made, group)
        return kept["result"]


def _gpu():
    return torch.device("cuda", torch.cuda.current_device())


def _as(memory, shape, move):
    """Return the first bytes of `memory` viewed as a shard of this shape."""
    return memory[: move.itemsize * math.prod(shape)].view(move.dtype).view(shape)
