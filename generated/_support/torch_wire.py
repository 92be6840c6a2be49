"""What a device exchanges with the others of a group: which bytes, and how they are packed."""

import contextlib

import torch

from .boxes import ranges, volume
from .triton_listed import Listed, entries_of


@contextlib.contextmanager
def unpacked(moves, outs, receiver):
    """Give the memory that pieces are copied into; then fill the results from it, those of terms
    without a value as such. Outside the target mesh there is none."""
    if receiver < 0:
        yield outs
        return
    empty = [move.exchange.is_empty(receiver) for move in moves]
    results = [*zip(moves, outs, empty, strict=True)]
    held = [out if is_empty else move.before(out) for move, out, is_empty in results]
    yield held
    for (move, out, is_empty), each in zip(results, held, strict=True):
        if is_empty:
            out.fill_(move.empty_value)
        else:
            move.after(each, out)


class Wire:
    """What a device exchanges: pieces by rank, tensor and box, an order that both ends know. Each
    is in a buffer; of one tensor, at the ends that are `in_place`, where it is in the shard.
    `by_pairs`: whether ranks can send to each other."""

    def __init__(self, moves, device_id, home, by_pairs=True):
        self.moves, self.home, exchange = moves, home, moves[0].exchange
        self.me = exchange.source_position(device_id)
        self.receiver = exchange.target_position(device_id)
        self.in_place = moves[0].tiles.together if by_pairs and len(moves) == 1 else ()
        arriving, leaving = [], []
        for number, move in enumerate(moves):
            for piece in move.exchange.incoming(self.receiver) if self.receiver >= 0 else ():
                arriving.append((exchange.source.ids[piece.sender], number, piece.box))
            for piece in move.exchange.outgoing(self.me) if self.me >= 0 else ():
                leaving.append((exchange.target.ids[piece.receiver], number, piece.box))
        own = [box for peer, *box in arriving if peer == device_id]
        held = {"source": self._source, "target": self._target}
        # (rank, first byte, end, tensor, box) of each piece of others, by end.
        self._placed = {
            end: [*self._places(pieces, device_id, held[end] if end in self.in_place else None)]
            for end, pieces in (("source", leaving), ("target", arriving))
        }
        self._packing = Listed(self._packed(), home)
        self._keeping = Listed(self._kept(own), home)
        self._unpacking = Listed(self._unpacked(), home)
        self.sent, self.received = self._sizes("source"), self._sizes("target")

    def _source(self, number):
        """Return the box of this device's source shard of a tensor."""
        return self.moves[number].exchange.source.box(self.me)

    def _target(self, number):
        """Return the box of its target shard."""
        return self.moves[number].exchange.target.box(self.receiver)

    def _places(self, pieces, device_id, held):
        """Yield the places of pieces: in the shard whose box `held` returns, or in a buffer."""
        stop, ranks = 0, self.moves[0].exchange.ranks
        for peer, number, box in sorted(pieces):
            if peer != device_id:
                size = self.moves[number].itemsize
                start, stop = stop, stop + volume(box) * size
                if held is not None:
                    start, stop = span(box, held(number), size)
                yield ranks.index(peer), start, stop, number, box

    def _sizes(self, end):
        """Return how many bytes leave for each rank, or arrive from it."""
        sizes = [0] * len(self.moves[0].exchange.ranks)
        for rank, start, stop, *_ in self._placed[end]:
            sizes[rank] += stop - start
        return sizes

    def _buffered(self, end):
        """Return the places of pieces in the buffer of an end."""
        return () if end in self.in_place else self._placed[end]

    def _packed(self):
        """Yield the entries that pack: the memories of the shards, to that of the buffer."""
        for _, start, _, number, box in self._buffered("source"):
            size, held = self.moves[number].itemsize, self._source(number)
            yield from entries_of(box, held, box, size, number, 0, 0, start)

    def _kept(self, own):
        """Yield the entries of what is here already: the memories of the shards, to those of the
        results."""
        for number, box in own:
            ends = self._source(number), self._target(number)
            yield from entries_of(box, *ends, self.moves[number].itemsize, number, number)

    def _unpacked(self):
        """Yield the entries that unpack: the memory of the buffer, to those of the results."""
        for _, start, _, number, box in self._buffered("target"):
            size, into = self.moves[number].itemsize, self._target(number)
            yield from entries_of(box, box, into, size, 0, number, start)

    def buffers(self):
        """Return memory for the pieces that leave, and for those that arrive."""
        ends = (self._buffered(end) for end in ("source", "target"))
        sizes = [places[-1][2] if places else 0 for places in ends]
        return [torch.empty(size, dtype=torch.uint8, device=self.home) for size in sizes]

    def pack(self, shards, packed, programs=None):
        """Copy what leaves out of the shards, where it is not sent in place: one launch."""
        self._packing.copy(map(_address, shards), [packed.data_ptr()], programs)

    def keep(self, shards, held, programs=None):
        """Copy what is here already to its place: one launch."""
        self._keeping.copy(map(_address, shards), map(_address, held), programs)

    def unpack(self, arrived, held, programs=None):
        """Copy what has come to its place, where it was not received in place: one launch."""
        self._unpacking.copy([arrived.data_ptr()], map(_address, held), programs)

    def parts(self, end, tensors, buffer):
        """Return (rank, bytes) of each piece that leaves ("source") or arrives ("target")."""
        if end in self.in_place and self._placed[end]:
            buffer = tensors[0].view(-1).view(torch.uint8)
        return [(rank, buffer[start:stop]) for rank, start, stop, *_ in self._placed[end]]


def span(box, held, size):
    """Return the first byte of a box, and the end, in a contiguous array of elements of `size`
    bytes that covers another; None where other elements are between."""
    first = last = 0
    for (low, high), (begin, end) in zip(ranges(box), ranges(held), strict=True):
        first = first * (end - begin) + low - begin
        last = last * (end - begin) + high - 1 - begin
    return (first * size, (last + 1) * size) if last - first < volume(box) else None


def _address(tensor):
    return 0 if tensor is None else tensor.data_ptr()
