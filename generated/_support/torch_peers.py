"""Moves of tiles through memory that all processes of a group share: receivers pull tiles from
offered shards, or senders push tiles to results (`torch_memory.py`)."""

import functools
import itertools
import weakref

from .torch_graphs import keep
from .torch_local import Together
from .torch_symmetric import address, shared
from .torch_tensors import LINE, capturing
from .triton_listed import Listed, entries_of


class PeerMemory(Together):
    """The use of symmetric memory by `Processes`. `features`: optional parts of the module, by
    name."""

    def __init__(self, *given, features=()):
        super().__init__(*given)
        self.features = dict(features)
        self._staging = functools.cache(
            lambda device_id, home, whole: Listed(self._staged(device_id, whole), home)
        )
        # State by group, whose calls are sequential: the device type and transport in use, by
        # requested transport; the memory of `symmetric_source` ("buffer"); the buffers of an
        # exchange, by device and stream; the memory of results ("result"); the remembered calls
        # ("calls"); and the state that all modules share ("shared").
        self._kept: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()

    def kept(self, group):
        """Return the state kept for a group."""
        kept = self._kept.get(group)
        if kept is None:
            common = shared(group)
            kept = self._kept[group] = {"shared": common, "calls": common.remembered()}
        return kept

    def by_symmetric_memory(self, shards, outs, device_id, home, group, programs):
        """Return a function that moves tiles from shards to results through symmetric memory."""
        place = self.result_place(shards, outs, group)
        if place is not None:
            return self.features["push"].pushing(self, shards, place, device_id, programs)
        return self._pulling(shards, outs, device_id, home, group, programs)

    def _pulling(self, shards, outs, device_id, home, group, programs):
        """Return a function that offers the parts of shards that other ranks need, waits until all
        ranks have done so, and pulls tiles."""
        place, starts = self._stage(group, home)
        me, copy = self.exchange.source_position(device_id), None
        if len(shards) == 1 and me >= 0:
            place = self.kept(group)["shared"].offered.get(address(shards[0]), place)
        ranks = [self.exchange.ranks.index(source) for source in self.exchange.source.ids]
        addresses = [[place.addresses[rank] + start for rank in ranks] for start in starts]
        own = [0 if each is None else address(each) for each in shards]
        here = address(place.held)
        if me >= 0 and any(at != here + start for at, start in zip(own, starts, strict=True)):
            whole = any(at % LINE for at in own)  # tiles read in place would be unaligned
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
        """Return the shared memory of the result, into which senders push tiles; None if peers
        cannot write it, or can read the source shard in place."""
        if "push" not in self.features or len(self.moves) > 1 or outs is None:
            return None
        kept, offered = self.kept(group), self.kept(group)["shared"].offered
        here, buffer = address(shards[0]), kept.get("buffer")
        if here in offered or (buffer and here == address(buffer.held)):
            return None
        return offered.get(address(outs[0]))

    def _stage(self, group, home):
        """Return the memory in which ranks offer their shards, and the start of each tensor in
        it."""
        kept, (*starts, size) = self.kept(group), self.starts
        return kept.get("buffer") or kept["shared"].grown(size, home, group), starts

    @functools.cached_property
    def starts(self):
        """Return the first byte of each tensor's shard in a buffer for all tensors, followed by the
        size of the buffer."""
        sizes = [-(-move.source_bytes // LINE) * LINE for move in self.moves]
        return [*itertools.accumulate(sizes, initial=0)]

    def _staged(self, device_id, whole):
        """Yield the entries that copy the parts of a device's shards that other ranks read or, if
        `whole`, whole shards."""
        for number, move in enumerate(self.moves):
            me = move.exchange.source_position(device_id)
            held, ids = move.exchange.source.box(me), move.exchange.target.ids
            pieces = move.exchange.outgoing(me)
            leaving = (each.box for each in pieces if ids[each.receiver] != device_id)
            for box in [held] if whole else dict.fromkeys(leaving):
                start = self.starts[number]
                yield from entries_of(box, held, held, move.itemsize, number, 0, 0, start)
