"""Reshards in one address space: of one tensor or many, all on the same devices, at once."""

import itertools

import torch

from .torch_tensors import join_streams, let_read


class Together:
    """The `moves` of some tensors, each of its own reshard. `puller` returns a function that fills
    the target shards of a device, from the addresses of all source shards; `names`: what messages
    call the tensors."""

    def __init__(self, moves, puller, names=("",)):
        self.moves, self.exchange = moves, moves[0].exchange
        self.puller, self.names = puller, names

    @torch.no_grad()
    def local(self, shards, outs, programs=None):
        """Return the target shards of each tensor from its source shards, all in one address space:
        one launch a device, of so many programs at most."""
        held = self.each(lambda move, given: move.by_position(given), shards)
        homes = {shard.device for each in held for shard in each}
        results = self.each(lambda move, *given: move.results(*given, homes), held, outs)
        for reader, owner in itertools.permutations(homes, 2):
            let_read(reader, owner)
        join_streams(homes)
        addresses = [[shard.data_ptr() for shard in each] for each in held]
        for number, device_id in enumerate(sorted(self.exchange.target.ids)):
            made = [each[number] for each in results]
            self.puller(addresses, made, device_id, programs)(made)
        join_streams(homes)
        return results

    def each(self, function, *given):
        """Return what a function of each move, and of what is given for it, returns; a ValueError
        says which tensor it is of, if that has a name."""
        found = []
        for name, *arguments in zip(self.names, self.moves, *given, strict=True):
            try:
                found.append(function(*arguments))
            except ValueError as error:
                raise ValueError(f"{name}: {error}" if name else str(error)) from None
        return found
