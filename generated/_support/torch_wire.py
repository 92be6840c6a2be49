"""The bytes that a device exchanges with the other devices of a group, and their packing."""

import contextlib
import itertools
import operator
import zlib

import torch

from .boxes import ranges
from .gaps import volume
from .triton_listed import Listed, entries_of

# Bytes of a call's number: the width of the widest load, so that the tiles after it stay aligned.
SAID = 16
OTHER_CALL = (
    "the ranks of the group are in different calls: an earlier call failed on some ranks, or the "
    "ranks call in different orders. Make the next call with check=True on all ranks"
)


@contextlib.contextmanager
def unpacked(moves, outs, receiver):
    """Yield the memory into which the caller copies pieces; then fill the results from it, and fill
    results that are missing terms with the empty value. Outside the target mesh there are no
    results."""
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
    """The exchange of one device. Its pieces are sorted by rank, tensor and box, in the same order
    at both ends. Each piece is in a buffer or, for a single tensor at the ends `in_place`, in the
    shard. `by_pairs`: whether ranks can send messages to each other.

    With the pieces every rank sends the number of the call, SAID bytes, to its `peers`, the
    ranks with which it exchanges pieces: after the pieces in the buffer if one collective sends
    all, else in a separate message. Both ends therefore detect tiles of a different call without
    waiting for a reply."""

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
        others = sorted({peer for peer, *_ in (*arriving, *leaving)} - {device_id})
        self.peers = [exchange.ranks.index(peer) for peer in others]
        held = {"source": self._source, "target": self._target}
        # By end ("source", "target"): (rank, start byte, stop byte, tensor, box) of each remote
        # piece; the start bytes of call numbers in the buffer; the size of the buffer.
        self._placed, self._numbers, self._ends = {}, {}, {}
        for end, pieces in (("source", leaving), ("target", arriving)):
            inside = held[end] if end in self.in_place else None
            self._place(end, pieces, others, inside)
        self._packing = Listed(self._packed(), home)
        self._keeping = Listed(self._kept(own), home)
        self._unpacking = Listed(self._unpacked(), home)
        self.sent, self.received = self._sizes("source"), self._sizes("target")

    def _source(self, number):
        return self.moves[number].exchange.source.box(self.me)

    def _target(self, number):
        return self.moves[number].exchange.target.box(self.receiver)

    def _place(self, end, pieces, others, held):
        """Record the places of pieces: in the shard whose box `held` returns, or in a buffer."""
        grouped = itertools.groupby(sorted(pieces), operator.itemgetter(0))
        by_peer = {peer: [*found] for peer, found in grouped}
        placed, numbers, stop = [], [], 0
        for rank, peer in zip(self.peers, others, strict=True):
            for _, number, box in by_peer.get(peer, ()):
                size = self.moves[number].itemsize
                if held is None:
                    start, stop = stop, stop + volume(box) * size
                    placed.append((rank, start, stop, number, box))
                else:
                    placed.append((rank, *span(box, held(number), size), number, box))
            if not self.in_place:
                numbers.append(stop)
                stop += SAID
        self._placed[end], self._numbers[end], self._ends[end] = placed, numbers, stop

    def _sizes(self, end):
        """Return the number of bytes that one collective sends to each rank ("source") or receives
        from it ("target")."""
        sizes = [0] * len(self.moves[0].exchange.ranks)
        for rank, start, stop, *_ in self._placed[end]:
            sizes[rank] += stop - start
        for rank in self.peers:
            sizes[rank] += SAID
        return sizes

    def _buffered(self, end):
        """Return the places of the pieces in the buffer of an end."""
        return () if end in self.in_place else self._placed[end]

    def _packed(self):
        """Yield the entries that fill the buffer: with pieces from the shards, and with call
        numbers from the buffer itself, which is the last source."""
        box, told = (0, SAID), self._told
        for start in self._numbers["source"]:
            yield from entries_of(box, box, box, 1, len(self.moves), 0, told, start)
        for _, start, _, number, box in self._buffered("source"):
            size, held = self.moves[number].itemsize, self._source(number)
            yield from entries_of(box, held, box, size, number, 0, 0, start)

    def _kept(self, own):
        """Yield the entries that copy local pieces from the shards to the results."""
        for number, box in own:
            ends = self._source(number), self._target(number)
            yield from entries_of(box, *ends, self.moves[number].itemsize, number, number)

    def _unpacked(self):
        """Yield the entries that empty the buffer: pieces go to the results, and call numbers to
        the end of the buffer itself, which is the last target."""
        box, heard = (0, SAID), self._heard
        for number, start in enumerate(self._numbers["target"]):
            to = heard + SAID * number
            yield from entries_of(box, box, box, 1, 0, len(self.moves), start, to)
        for _, start, _, number, box in self._buffered("target"):
            size, into = self.moves[number].itemsize, self._target(number)
            yield from entries_of(box, box, into, size, 0, number, start)

    def buffers(self):
        """Return two buffers. The first: outgoing pieces, then this rank's call number. The second:
        incoming pieces, then the call numbers of all peers."""
        sizes = self._told + SAID, self._heard + SAID * len(self.peers)
        return [torch.empty(size, dtype=torch.uint8, device=self.home) for size in sizes]

    @property
    def _told(self):
        return -(-self._ends["source"] // SAID) * SAID

    @property
    def _heard(self):
        return -(-self._ends["target"] // SAID) * SAID

    def tell(self, packed, call):
        """Write the number of the call into the buffer of outgoing pieces."""
        packed[self._told :].view(torch.int64).fill_(call)

    def at_once(self, packed, arrived):
        """Return the arguments of `all_to_all_single`: the buffers to receive into and send from,
        and the numbers of bytes from and for each rank."""
        ends = arrived[: self._ends["target"]], packed[: self._ends["source"]]
        return *ends, self.received, self.sent

    def messages(self, packed, arrived):
        """Return two lists of (rank, bytes) for call numbers in separate messages: the messages
        that this rank sends, and the messages that it receives."""
        told, starts = packed[self._told :], range(self._heard, len(arrived), SAID)
        heard = [arrived[start : start + SAID] for start in starts]
        return [(rank, told) for rank in self.peers], [*zip(self.peers, heard, strict=True)]

    def check(self, arrived, call):
        """Raise RuntimeError if a peer is in a different call. On a GPU, for which the host does
        not wait, a kernel stops the process before anything reads tiles of a different call."""
        heard = arrived[self._heard :].view(torch.int64)
        if heard.device.type != "cpu":
            torch._assert_async(heard.eq(call).all(), OTHER_CALL)
            return
        for rank, other in zip(self.peers, heard[::2].tolist(), strict=True):
            if other != call:
                numbers = f"rank {rank} is in call {other >> 32}, this rank in call {call >> 32}"
                raise RuntimeError(f"{OTHER_CALL}: {numbers}")

    def pack(self, shards, packed, programs=None):
        """Copy outgoing pieces from the shards to the buffer in one launch, unless they are sent in
        place."""
        sources = (*map(_address, shards), packed.data_ptr())
        self._packing.copy(sources, [packed.data_ptr()], programs)

    def keep(self, shards, held, programs=None):
        """Copy local pieces to the memory `held` in one launch."""
        self._keeping.copy(map(_address, shards), map(_address, held), programs)

    def unpack(self, arrived, held, programs=None):
        """Copy incoming pieces from the buffer to the memory `held` in one launch, unless they were
        received in place."""
        targets = (*map(_address, held), arrived.data_ptr())
        self._unpacking.copy([arrived.data_ptr()], targets, programs)

    def parts(self, end, tensors, buffer):
        """Return (rank, bytes) of each piece that leaves ("source") or arrives ("target")."""
        if end in self.in_place and self._placed[end]:
            buffer = tensors[0].view(-1).view(torch.uint8)
        return [(rank, buffer[start:stop]) for rank, start, stop, *_ in self._placed[end]]


def call_of(number, plan):
    """Return the integer by which ranks compare calls: the call's number in the group in the high
    32 bits, a checksum of the plan in the low 32 bits."""
    return number << 32 | zlib.crc32(plan.encode())


def span(box, held, size):
    """Return the byte range of a box in a contiguous array of elements of `size` bytes that covers
    box `held`, as (start, stop); None if the box is not contiguous there."""
    first = last = 0
    for (low, high), (begin, end) in zip(ranges(box), ranges(held), strict=True):
        first = first * (end - begin) + low - begin
        last = last * (end - begin) + high - 1 - begin
    return (first * size, (last + 1) * size) if last - first < volume(box) else None


def _address(tensor):
    return 0 if tensor is None else tensor.data_ptr()
