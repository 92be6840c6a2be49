"""What a device does within `shard_map`, as the host side of a reshard sees it."""

import jax.numpy as jnp

from .boxes import Exchange


class Program:
    """Makes the target shard of a device of its source shard. `moves`: everything that moves
    (`boxes.Exchange`), None where that is said by collectives alone; `order`: a table of ranks;
    `collective_id`: that of its kernels; each None where there is none."""

    moves: Exchange | None = None
    interpreted: object = True  # as what kernels are interpreted to check them
    order: tuple[int, ...] | None = None
    collective_id: int | None = None
    proved = "what is sent is what is expected; "

    def attach(self, host):
        """Get to know what is moved."""
        self.host = host
        self.floating = bool(jnp.issubdtype(host.dtype, jnp.floating))

    def as_bits(self, interpret):
        """Return whether elements are given as integers of their width."""
        del interpret
        return self.floating

    def exchange(self, shard, order, interpret, collective_id):
        """Return the target shard, its padding zero."""
        raise NotImplementedError

    def check_routes(self, devices):
        """Raise ValueError for devices, by rank, among which it cannot send."""

    def fault(self):
        """Return what is wrong with how shards are moved, found without data; "" if nothing is."""
        return ""

    def numbered(self, tensor):
        """Return a tensor of small numbers as `pad` takes it, and as the result has it."""
        tensor = tensor.astype(self.host.dtype)
        return tensor, tensor

    def read(self, result):
        """Return the tensor that an unpadded result stands for."""
        return result
