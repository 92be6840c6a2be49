"""The code around the kernels of programs with Pallas kernels."""

import functools
from typing import Any

from .pallas_call import Call


class PallasProgram:
    """A program with kernels. `peers`: the ends of all transfers, None if partial results move;
    `order`: a table of ranks, or None; `terms`: the `Terms` that dimension 0 numbers, or None;
    `view`: the tensor's dimensions in kernel order; TPU memory tiles the last two; `powers_of_two`:
    whether the module is for a v5e, whose devices send directly only over a power of two of hops
    along one axis; `bits`: when elements are taken as integers of their width: "always",
    "interpreted" or "" (never); `carriers`: the programs with one kernel each, in order.

    A form with one kernel defines `moved(x, call)`, which returns the target shard, with undefined
    values where its kernel writes nothing; other programs define `carried`.

    A device may enter the next kernel while its peers are still in this one. This is safe after the
    same kernel on the same mesh, and after kernels with other ids. The id is a hash of the
    description: if a program uses several modules, or one on several meshes, check that ids differ.
    """

    peers: Any = None
    order: Any = None
    terms: Any = None
    pairs: Any = None  # returns the ranks of senders and receivers, if they are not in `moves`
    bits = ""
    leaves_padding = True  # whether unwritten elements must be zeroed
    moved: Any

    def __init__(self, peers, view, collective_id=None, powers_of_two=False, bits=""):
        self.peers, self.view, self.order, self.bits = peers, view, peers.order, bits
        self.collective_id, self.powers_of_two = collective_id, powers_of_two
        self.inverse = tuple(view.index(axis) for axis in range(len(view)))
        local, self.carriers = peers.target.local or (1,), (self,)
        self.target_shape = tuple(local[axis] for axis in view)  # in kernel order

    # The `Exchange` of all transfers, None if partial results move.
    moves = property(lambda self: self.peers and self.peers.exchange)

    def attach(self, host):
        """Bind to the host of a reshard."""
        self.host = host

    def settings(self, devices, interpret, collective_id):
        """Return the program's collective id; `collective_id`, if given, replaces the module's. If
        kernels are not interpreted, raise ValueError for devices, given by rank, that are not TPUs
        or cannot send to their peers."""
        if self.collective_id is None:
            return None
        if not interpret:
            from .pallas_routes import check_routes  # only on TPUs

            check_routes(self, list(devices))
        return self.collective_id if collective_id is None else collective_id

    def exchange(self, shard, order, interpret, collective_id):
        """Return the target shard with zero padding."""
        move = functools.partial(self.carried, call=Call(order, interpret, collective_id))
        if self.bits != "always" and not (self.bits and interpret):
            return move(shard)
        from .jax_bits import by_bits  # only if XLA or kernels may change or lack the elements

        return by_bits(move, shard)

    def carried(self, shard, call):
        """Return the target shard with zero padding, given a source shard."""
        moved = self.moved
        if shard.dtype in ("bool", "int64") or not shard.shape:
            from .pallas_elements import in_vectors  # only if kernels cannot take the elements

            moved = functools.partial(in_vectors, moved)
        y = moved(shard, call)
        if self.host.paddings and self.leaves_padding:
            from .jax_zeros import zero_ends  # only if emitted with padding

            y = zero_ends(y, self.host, self.peers.here(call.order)[1])
        return y

    def watched(self, move):
        """Return the result of a move in a self-check; exit if its kernels race."""
        from .pallas_watched import watched  # only if few elements move

        return watched(move)

    def fault(self):
        """Return a message, found without data, about the first transfer that only one end lists,
        or the first device whose wait does not match the transfers on its semaphores, or "". Here
        only what is listed is proved: kernels send, signal and wait for the pieces of these lists.
        That they do is what moved elements, without a race, show."""
        return self.peers.proof.fault() if self.peers else ""
