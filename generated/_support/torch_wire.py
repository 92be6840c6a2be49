"""What a device exchanges with the others of a group: which bytes, and how they are packed."""

import contextlib
import itertools

import torch

from .boxes import ranges, volume
from .triton_listed import Listed, entries_of


@contextlib.contextmanager
def unpacked(moves, outs, receiver):
    """Give the memory that pieces are copied into; then fill the results from it, those of terms
    without a value as such."""
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
    """What a device exchanges: pieces by rank, tensor and box, an order that both ends know.
    `whole`: whether there are any, of one tensor, and the bytes of each are together in this
    device's shards, so that nothing has to be packed."""

    def __init__(self, moves, device_id, home):
        self.moves, self.home, exchange = moves, home, moves[0].exchange
        self.me = exchange.source_position(device_id)
        self.receiver = exchange.target_position(device_id)
        arriving, leaving = [], []
        for number, move in enumerate(moves):
            for piece in move.exchange.incoming(self.receiver) if self.receiver >= 0 else ():
                arriving.append((exchange.source.ids[piece.sender], number, piece.box))
            for piece in move.exchange.outgoing(self.me) if self.me >= 0 else ():
                leaving.append((exchange.target.ids[piece.receiver], number, piece.box))
        self._spans = [
            [*self._ranges(pieces, box, device_id)] if len(moves) == 1 else []
            for pieces, box in ((leaving, self._source), (arriving, self._target))
        ]
        spans = [*itertools.chain(*self._spans)]
        # A rank without any would not hear of another that fails, and NCCL may wait for it.
        self.whole = bool(spans) and None not in spans and not exchange.hidden
        arriving, self.received = self._placed(arriving, device_id)
        leaving, self.sent = self._placed(leaving, device_id)
        self._packing = Listed(self._packed(leaving), home)
        self._keeping = Listed(self._own(arriving), home)
        self._unpacking = Listed(self._unpacked(arriving), home)

    def _source(self, number):
        """Return the box of this device's source shard of a tensor."""
        return self.moves[number].exchange.source.box(self.me)

    def _target(self, number):
        """Return the box of its target shard."""
        return self.moves[number].exchange.target.box(self.receiver)

    def _ranges(self, pieces, box, device_id):
        """Yield (rank, first byte, end) in a shard of each piece that another device has or gets,
        None for one whose bytes are not together."""
        for peer, number, piece in sorted(pieces):
            if peer != device_id:
                found = span(piece, box(number), self.moves[number].itemsize)
                yield found and (self.moves[0].exchange.ranks.index(peer), *found)

    def _placed(self, pieces, device_id):
        """Return (first byte in the buffer, tensor, box) of each piece, by rank, -1 for the first
        byte of one that stays on the device; bytes a rank."""
        sizes, listed, start = dict.fromkeys(self.moves[0].exchange.ranks, 0), [], 0
        for peer, number, box in sorted(pieces):
            listed.append((-1 if peer == device_id else start, number, box))
            if peer != device_id:
                size = volume(box) * self.moves[number].itemsize
                sizes[peer] += size
                start += size
        return listed, [*sizes.values()]

    def _packed(self, pieces):
        """Yield the entries that pack: the memories of the shards, to that of the buffer."""
        for start, number, box in pieces:
            if start >= 0:
                size, held = self.moves[number].itemsize, self._source(number)
                yield from entries_of(box, held, box, size, number, 0, 0, start)

    def _own(self, pieces):
        """Yield the entries of what is here already: the memories of the shards, to those of the
        results."""
        for start, number, box in pieces:
            if start < 0:
                ends = self._source(number), self._target(number)
                yield from entries_of(box, *ends, self.moves[number].itemsize, number, number)

    def _unpacked(self, pieces):
        """Yield the entries that unpack: the memory of the buffer, to those of the results."""
        for start, number, box in pieces:
            if start >= 0:
                size, into = self.moves[number].itemsize, self._target(number)
                yield from entries_of(box, box, into, size, 0, number, start)

    def buffers(self):
        """Return memory for the pieces that leave, and for those that arrive."""
        sizes = sum(self.sent), sum(self.received)
        return [torch.empty(size, dtype=torch.uint8, device=self.home) for size in sizes]

    def pack(self, shards, packed, programs=None):
        """Copy what leaves out of the shards: one launch."""
        self._packing.copy(map(_address, shards), [packed.data_ptr()], programs)

    def unpack(self, shards, arrived, outs, wait=lambda: None, programs=None):
        """Copy what was here already to its place, one launch; `wait` for what comes, and copy
        that: one launch more."""
        if self.receiver < 0:
            wait()
            return
        with unpacked(self.moves, outs, self.receiver) as held:
            self._keeping.copy(map(_address, shards), map(_address, held), programs)
            wait()
            self._unpacking.copy([arrived.data_ptr()], map(_address, held), programs)

    def parts(self, tensors, way):
        """Return (rank, bytes, how many before these with that rank) of the pieces that leave (0)
        or arrive (1), where they are whole."""
        numbers: dict[int, itertools.count] = {}
        (tensor,) = tensors
        if tensor is None:
            return []
        memory = tensor.view(-1).view(torch.uint8)
        return [
            (rank, memory[start:end], next(numbers.setdefault(rank, itertools.count())))
            for rank, start, end in self._spans[way]
        ]

    def keep(self, shards, outs, programs=None):
        """Copy what is here already straight to its place."""
        if self.receiver >= 0:
            self._keeping.copy(map(_address, shards), map(_address, outs), programs)


def span(box, held, size):
    """Return the first byte of a box, and the end, in a contiguous array of elements of `size`
    bytes that covers another; None where other elements are between."""
    start, stride, partial = 0, size, False
    for (low, high), (first, last) in reversed([*zip(ranges(box), ranges(held), strict=True)]):
        if partial and high - low > 1:
            return None
        start += (low - first) * stride
        stride *= last - first
        partial = partial or high - low < last - first
    return start, start + volume(box) * size


def _address(tensor):
    return 0 if tensor is None else tensor.data_ptr()
