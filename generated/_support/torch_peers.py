"""Tiles that go through memory which all processes of a group read and write: pulled from where
shards are offered, or pushed to where results are."""

import functools
import itertools
import math
import weakref

import torch
import torch.distributed as dist

from .boxes import volume
from .torch_graphs import keep
from .torch_local import Together
from .torch_symmetric import address, in_group, placed, shared, symmetric
from .torch_tensors import LINE, capturing, check
from .triton_listed import Listed, entries_of


class PeerMemory(Together):
    """What `Processes` do with symmetric memory."""

    def __init__(self, *given):
        super().__init__(*given)
        self._staging = functools.cache(
            lambda device_id, home, whole: Listed(self._staged(device_id, whole), home)
        )
        self._pushed = functools.cache(
            lambda device_id, home: Listed(self._pushed_entries(device_id), home)
        )
        # By group, whose calls come one after another: the kind of device and the transport taken
        # by that asked for; `symmetric_buffer`; the buffers of an exchange by device and stream;
        # how tensors that came before are moved again; what other modules have as well.
        self._kept: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()

    def _of(self, group):
        kept = self._kept.get(group)
        if kept is None:
            common = shared(group)
            kept = self._kept[group] = {"shared": common, "calls": common.remembered()}
        return kept

    def by_symmetric_memory(self, shards, outs, device_id, home, group, programs):
        """Return a function that moves tiles from shards to results."""
        place = self.result_place(shards, outs, group)
        if place is not None:
            return self._pushing(shards[0], place, device_id, home, programs)
        return self._pulling(shards, outs, device_id, home, group, programs)

    def _pulling(self, shards, outs, device_id, home, group, programs):
        """Return a function that lets all ranks offer what leaves their shards, and then pull tiles
        from where they are."""
        place, starts = self._stage(group, home)
        me, copy = self.exchange.source_position(device_id), None
        if len(shards) == 1 and me >= 0:
            place = self._of(group)["shared"].offered.get(address(shards[0]), place)
        ranks = [self.exchange.ranks.index(source) for source in self.exchange.source.ids]
        addresses = [[place.addresses[rank] + start for rank in ranks] for start in starts]
        own = [0 if each is None else address(each) for each in shards]
        here = address(place.held)
        if me >= 0 and any(at != here + start for at, start in zip(own, starts, strict=True)):
            whole = any(at % LINE for at in own)  # from there tiles would not be read in lines
            copy = self._staging(device_id, home, whole).copier(tuple(own), (here,), programs)
            for each, at in zip(addresses, own, strict=True):
                each[me] = each[me] if whole else at
        pull = None
        if self.exchange.target_position(device_id) >= 0:
            pull = self.puller(addresses, outs, device_id, programs)
        if capturing(home):
            keep(place)

        def run(shards, outs, group, number):
            if copy is not None:
                copy()
            place.meet(number)
            yield
            if pull is not None:
                pull(outs)
            place.meet(number)

        return run

    def result_place(self, shards, outs, group):
        """Return where the result is, if tiles are pushed there: where it is a tensor that all
        ranks write, and the shard is none that they read; else None."""
        if not self.pushes or outs is None:
            return None
        kept, offered = self._of(group), self._of(group)["shared"].offered
        here, buffer = address(shards[0]), kept.get("buffer")
        if here in offered or (buffer and here == address(buffer.held)):
            return None
        return offered.get(address(outs[0]))

    @functools.cached_property
    def pushes(self):
        """Whether tiles can be pushed: one tensor, whose terms are not reduced by who reads them,
        and on every device a shard before and one after."""
        first, *others = self.moves
        exchange = self.exchange
        both = {*exchange.source.ids} & {*exchange.target.ids}
        return not (others or first.reduces) and both == {*exchange.ranks}

    def _pushing(self, shard, place, device_id, home, programs):
        """Return a function that writes tiles to the results of all ranks once these expect it."""
        ranks = [self.exchange.ranks.index(target) for target in self.exchange.target.ids]
        push = self.pusher(shard, [place.addresses[rank] for rank in ranks], device_id, programs)
        if capturing(home):
            keep(place)

        def run(shards, outs, group, number):
            place.meet(number)  # nobody reads what was there before
            push(outs)
            yield
            place.meet(number)  # what all have pushed is there

        return run

    def pusher(self, shard, addresses, device_id, programs=None):
        """Return a function that copies tiles of a source shard to the target shards at these
        addresses, and fills that of the device if it is of a term without a value."""
        copy = self._pushed(device_id, shard.device).copier(
            (shard.data_ptr(),), tuple(addresses), programs
        )
        if not self.exchange.is_empty(self.exchange.target_position(device_id)):
            return lambda outs: copy()

        def run(outs):
            copy()
            outs[0].fill_(self.moves[0].empty_value)

        return run

    def _pushed_entries(self, device_id):
        """Yield the entries that copy tiles of a device's source shard to the target shards, each
        a memory: first to the device that comes next, last to itself."""
        exchange, (move,) = self.exchange, self.moves
        me, count = exchange.ranks.index(device_id), len(exchange.ranks)
        sender = exchange.source_position(device_id)
        held, target = exchange.source.box(sender), exchange.target
        turns = {p: (exchange.ranks.index(i) - me - 1) % count for p, i in enumerate(target.ids)}
        for piece in sorted(exchange.outgoing(sender), key=lambda piece: turns[piece.receiver]):
            into = target.box(piece.receiver)
            yield from entries_of(piece.box, held, into, move.itemsize, 0, piece.receiver)

    def source_memory(self, group, shard):
        """Return what `symmetric_source` does."""
        group = in_group(group)
        (move,), device_id = self.moves, self.exchange.ranks[dist.get_rank(group)]

        def given():
            move.check_source(shard, device_id)
            return shard

        if shard is not None:
            return shared(group).offer(given, group)
        buffer = self.symmetric_buffer(group, _gpu())
        if self.exchange.source_position(device_id) < 0:
            return None
        return _as(buffer, move.source_shape(device_id), move)

    def symmetric_buffer(self, group, home):
        """Return memory of this module alone that holds any device's source shards and that every
        rank can read; made once a group."""
        kept = self._of(group)
        if "buffer" not in kept:
            kept["buffer"] = placed(lambda: symmetric(self._starts[-1], home), group)
            kept["calls"].clear()
        return kept["buffer"].held

    def result_memory(self, group, out):
        """Return what `symmetric_result` does."""
        if not self.pushes:
            why = "terms are reduced" if self.moves[0].reduces else "a device is in one mesh only"
            raise ValueError(f"symmetric_result: {why}, so that tiles are pulled")
        group = in_group(group)
        (move,), device_id = self.moves, self.exchange.ranks[dist.get_rank(group)]
        shape, kept, target = move.target_shape(device_id), self._of(group), self.exchange.target

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

    def _stage(self, group, home):
        """Return where ranks offer their shards, and where each tensor's begins there."""
        kept, (*starts, size) = self._of(group), self._starts
        return kept.get("buffer") or kept["shared"].grown(size, home, group), starts

    @functools.cached_property
    def _starts(self):
        """Where the shards of each tensor begin in memory that holds all, and the end of that."""
        sizes = [-(-move.source_bytes // LINE) * LINE for move in self.moves]
        return [*itertools.accumulate(sizes, initial=0)]

    def _staged(self, device_id, whole):
        """Yield the entries that copy what others get of a device's shards, or all of them."""
        for number, move in enumerate(self.moves):
            me = move.exchange.source_position(device_id)
            held, ids = move.exchange.source.box(me), move.exchange.target.ids
            pieces = move.exchange.outgoing(me)
            leaving = (each.box for each in pieces if ids[each.receiver] != device_id)
            for box in [held] if whole else dict.fromkeys(leaving):
                start = self._starts[number]
                yield from entries_of(box, held, held, move.itemsize, number, 0, 0, start)


def _gpu():
    return torch.device("cuda", torch.cuda.current_device())


def _as(memory, shape, move):
    """Return the first bytes of memory as a shard."""
    return memory[: move.itemsize * math.prod(shape)].view(move.dtype).view(shape)
