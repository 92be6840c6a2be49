"""Programs in plain JAX: the per-device function on a shard, using `lax` collectives in a
`shard_map`."""

from jax import lax


class XlaProgram:
    """`exchange_of` returns the target shard of a source shard; `axes`: the axes that rank devices;
    `short`: the dimensions along which it leaves nonzero padding; `terms`: the meaning of
    dimension 0 if it numbers terms; `moves`: all transfers, an `Exchange`, None if collectives
    alone describe them; `bits`: how elements are moved as integers, if XLA may change small
    floats."""

    interpreted = False  # there are no kernels
    order = None  # nor a table of ranks for them

    def __init__(self, exchange_of, axes, short=(), terms=None, moves=None, bits=None):
        self._exchange_of, self._axes, self._short = exchange_of, axes, short
        self._bits, self.terms, self.moves = bits, terms, moves

    def attach(self, host):
        """Bind to an exchange."""
        self.host = host

    def settings(self, devices, interpret, collective_id):
        """Return no collective id for a program on devices, by rank."""
        del devices, interpret, collective_id

    def fault(self):
        """Return "": there are no semaphores to check."""
        return ""

    def watched(self, move):
        """Run a function; nothing is watched meanwhile."""
        return move()

    def exchange(self, shard, order, batch, interpret, collective_id):
        """Return the target shard with zero padding; `batch`: the number of leading batch
        dimensions, which only a primitive has."""
        del order, interpret, collective_id
        move = self.host.operation.batched(self._moved, batch) if batch else self._moved
        return self._bits(move, shard, self._axes) if self._bits else move(shard)

    def _moved(self, shard):
        source, target = self.host.source, self.host.target
        y = self._exchange_of(shard)
        if self._short:
            from .jax_zeros import extent_of, zeroed  # if emitted with padding

            extent = extent_of(source, target, lax.axis_index(self._axes))
            y = zeroed(y, target, self._short, extent, everywhere=self.moves is None)
        return y.reshape(target.local)  # a scalar may move as a vector
