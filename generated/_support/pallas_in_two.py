"""Reductions of terms in two kernels: the first reduces terms to parts of target shards, the second
copies the parts to the replicas of these shards."""

from .pallas_program import PallasProgram
from .pallas_terms import Carried


class InTwo(PallasProgram):
    """Two programs in sequence. `first` reduces terms to parts of target shards, `then` copies the
    parts to the shards' replicas; `parts`: the `Sharded` of these parts."""

    def __init__(self, first, parts, then):
        self.first, self.parts, self.then = first, parts, then
        self.terms, self.collective_id = first.terms, first.collective_id
        # One device may be in the second kernel while others are in the first, so ids must differ.
        self._more_ids = then.collective_id - first.collective_id
        self.carriers = (*first.carriers, *then.carriers)

    def attach(self, host):
        """Bind to the host of a reshard."""
        super().attach(host)
        self.first.attach(Carried(host.shape, host.dtype, host.source, self.parts))
        ends = self.parts, host.target
        self.then.attach(Carried(host.shape, host.dtype, *ends, host.paddings))

    def fault(self):
        """Return the first fault in either program's transfers or waits, or ""."""
        return next(filter(None, (one.fault() for one in self.carriers)), "")

    def carried(self, shard, call):
        """Return the target shard with zero padding."""
        # Each exchange converts elements itself: rings add values, copies may move their bits.
        part = self.first.exchange(shard, *call)
        next_id = call.collective_id + self._more_ids
        return self.then.exchange(part, *call._replace(collective_id=next_id))
