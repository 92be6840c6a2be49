"""Programs in plain JAX: the per-device function on a shard, using `lax` collectives in a
`shard_map`."""


class XlaProgram:
    """A program without kernels. `exchange_of`: a function from a source shard to the target shard,
    with zero padding; `axes`: the mesh axes that number the devices; `terms`: the `Terms` that
    dimension 0 numbers, or None; `moves`: the `Exchange` of all transfers, None if only collectives
    describe them; `bits`: a function that moves elements as integers, None unless XLA may change
    small floats."""

    order = None  # there is no table of ranks for kernels

    def __init__(self, exchange_of, axes, terms=None, moves=None, bits=None):
        self._exchange_of, self._axes, self._bits = exchange_of, axes, bits
        self.terms, self.moves, self.peers = terms, moves, moves

    def attach(self, host):
        """Bind to the host of a reshard."""
        self.host = host

    def settings(self, *_):
        """Return None, because there is no collective id."""

    def fault(self):
        """Return a message about the first transfer that only one end lists, or ""."""
        return self.peers.fault() if self.peers else ""

    def watched(self, move):
        """Return the result of a move in a self-check: there are no kernels to watch."""
        return move()

    def exchange(self, shard, *_):
        """Return the target shard with zero padding."""
        move = self._exchange_of
        return self._bits(move, shard, self._axes) if self._bits else move(shard)
