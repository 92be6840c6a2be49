"""Reductions of terms in two kernels: the first reduces terms to parts of target shards, the second
copies the parts to the replicas of these shards."""

from .pallas_program import KernelProgram
from .pallas_terms import Carried


class InTwo(KernelProgram):
    """Two programs in sequence. `first` reduces terms to parts of target shards, `then` copies the
    parts to the shards' replicas; `parts`: the `Sharded` of these parts."""

    def __init__(self, first, parts, then):
        self.first, self.parts, self.then = first, parts, then
        self.terms, self.collective_id = first.terms, first.collective_id
        self.interpreted = first.interpreted
        # One device may be in the second kernel while others are in the first.
        self._more_ids = then.collective_id - first.collective_id

    @property
    def carriers(self):
        """Return the programs that have one kernel each, in order."""
        return (*self.first.carriers, *self.then.carriers)

    def attach(self, host):
        """Bind to the host of a reshard."""
        super().attach(host)
        self.first.attach(Carried(host.shape, host.dtype, host.source, self.parts))
        self.then.attach(Carried(host.shape, host.dtype, self.parts, host.target))

    def check_routes(self, devices):
        """Raise ValueError if devices are not TPUs, or if a v5e cannot send directly to a
        receiver."""
        self.first.check_routes(devices)
        self.then.check_routes(devices)

    def fault(self):
        """Return the first fault in either program's transfers or waits, or ""."""
        moved = (one.proof.fault() for one in self.carriers if one.proof)
        faults = (*moved, *(one.fault() for one in self.carriers))
        return next(filter(None, faults), "")

    def carried(self, shard, order, interpret, collective_id):
        """Return the target shard with zero padding."""
        # Each exchange converts elements itself: rings add values, copies may move their bits.
        part = self.first.exchange(shard, order, 0, interpret, collective_id)
        return self.then.exchange(part, order, 0, interpret, collective_id + self._more_ids)
