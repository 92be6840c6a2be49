"""Reshards in one address space, of one tensor or of many on the same devices at once."""

import torch

NO_GRADIENT = (
    "a source shard requires a gradient, but this module has none: emit it with gradient=True "
    "(--gradient), or call it in torch.no_grad()"
)


class Together:
    """Tensors that move together. `moves`: the reshard of each tensor; `puller`: takes the
    addresses of all source shards and returns a function that fills a device's target shards;
    `names`: the tensors' names in messages."""

    def __init__(self, moves, puller, names=("",)):
        self.moves, self.exchange = moves, moves[0].exchange
        self.puller, self.names = puller, names

    @torch.no_grad()
    def local(self, shards, outs, programs=None):
        """Return the target shards of each tensor, given its source shards, all in one address
        space. Each device makes one launch of at most `programs` programs."""
        held = self.each(lambda move, given: move.by_position(given), shards)
        results = self.each(lambda move, *given: move.results(*given), held, outs)
        return self.filled(results, held, programs)

    @torch.no_grad()
    def filled(self, results, held, programs=None):
        """Fill target shards, in order of device ids, from source shards by position; return the
        target shards."""
        homes = {shard.device for each in held for shard in each}
        if {home.type for home in homes} not in ({"cpu"}, {"cuda"}):
            listed = sorted(map(str, homes))
            raise ValueError(f"got source shards on {listed}, expected all on GPUs or all on CPU")
        if several := len(homes) > 1:
            from .torch_several import join_streams  # imported on first use

            join_streams(homes)
        addresses = [[shard.data_ptr() for shard in each] for each in held]
        for number, device_id in enumerate(sorted(self.exchange.target.ids)):
            made = [each[number] for each in results]
            self.puller(addresses, made, device_id, programs)(made)
        if several:
            join_streams(homes)
        return results

    def each(self, function, *given):
        """Apply a function to each move and its arguments; add the tensor's name, if any, to a
        ValueError."""
        found = []
        for name, *arguments in zip(self.names, self.moves, *given, strict=True):
            try:
                found.append(function(*arguments))
            except ValueError as error:
                raise ValueError(f"{name}: {error}" if name else str(error)) from None
        return found
