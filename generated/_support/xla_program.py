"""Programs in plain JAX: what a device does of its shard, by `lax` collectives in a `shard_map`."""

from jax import lax


class XlaProgram:
    """`exchange_of` makes the target shard of a source shard; `axes`: those over which devices are
    ranked; `short`: the dimensions along which it leaves padding that is not zero; `terms`: what
    dimension 0 is, where it is one; `moves`: everything that moves, an `Exchange`, None where that
    is said by collectives alone; `bits`: how elements are moved as integers, where XLA may change
    small floats that are but moved."""

    interpreted = False  # there are no kernels
    order = None  # nor a table of ranks that these take

    def __init__(self, exchange_of, axes, short=(), terms=None, moves=None, bits=None):
        self._exchange_of, self._axes, self._short = exchange_of, axes, short
        self._bits, self.terms, self.moves = bits, terms, moves

    def attach(self, host):
        """Bind to an exchange."""
        self.host = host

    def settings(self, devices, interpret, collective_id):
        """Return the collective id of a program for devices, by rank: none."""
        del devices, interpret, collective_id

    def fault(self):
        """Return what is wrong on semaphores; "": there are none."""
        return ""

    def watched(self, move):
        """Return what a function returns; nothing is noticed meanwhile."""
        return move()

    def exchange(self, shard, order, batch, interpret, collective_id):
        """Return the target shard, its padding zero; `batch`: how many dimensions of a batch, which
        only an operation has, are before its own."""
        del order, interpret, collective_id
        move = self.host.operation.batched(self._moved, batch) if batch else self._moved
        return self._bits(move, shard, self._axes) if self._bits else move(shard)

    def _moved(self, shard):
        source, target = self.host.source, self.host.target
        y = self._exchange_of(shard)
        if self._short:
            from .jax_zeros import extent_of, zeroed  # where it was emitted with padding

            extent = extent_of(source, target, lax.axis_index(self._axes))
            y = zeroed(y, target, self._short, extent, everywhere=self.moves is None)
        return y.reshape(target.local)  # a scalar may move as a vector
