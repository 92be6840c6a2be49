"""Programs in plain JAX: the per-device function on a shard, using `lax` collectives in a
`shard_map`."""


class XlaProgram:
    """`exchange_of` returns the target shard, with zero padding, of a source shard; `axes`: the
    axes that rank devices; `terms`: the meaning of dimension 0 if it numbers terms; `moves`: all
    transfers, an `Exchange`, None if only collectives describe them; `bits`: how to move elements
    as integers, if XLA may change small floats."""

    interpreted = order = None  # there are no kernels, and no table of ranks for them

    def __init__(self, exchange_of, axes, terms=None, moves=None, bits=None):
        self._exchange_of, self._axes, self._bits = exchange_of, axes, bits
        self.terms, self.moves = terms, moves

    def attach(self, host):
        """Bind to an exchange."""
        self.host = host

    def settings(self, *_):
        """Return None: there is no collective id."""

    def fault(self):
        """Return None: there are no semaphores to check."""

    def watched(self, move):
        """Run a function; nothing is watched meanwhile."""
        return move()

    def exchange(self, shard, order, batch, *_):
        """Return the target shard with zero padding; `batch`: the number of leading batch
        dimensions, nonzero only under the primitive."""
        move = self._exchange_of
        move = self.host.operation.batched(move, batch) if batch else move
        return self._bits(move, shard, self._axes) if self._bits else move(shard)
