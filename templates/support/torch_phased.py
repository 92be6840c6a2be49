"""Emitted reshards in two exchanges: the first reduces terms to parts, the second copies the
parts."""

import functools

from .exchanges import Exchange
from .torch_check import proved
from .torch_gpu import Reshard
from .torch_local import Together


class Phased(Reshard):
    """An emitted reshard in two exchanges: `first` reduces terms to parts of target shards, `then`
    copies the parts to the replicas of these shards. `gradient`, `features`: as in `Reshard`."""

    def __init__(self, first, then, gradient=None, features=()):
        self.shape, self.dtype, self.gradient = first.shape, first.dtype, gradient
        self._both, self.features = (first, then), dict(features)
        self.exchange = Exchange(first.exchange.source, then.exchange.target, None, None)
        # The second exchange stays in the target mesh, but uses the process group of the first.
        then.exchange.ranks = self.exchange.ranks
        self.here = _OneAfterOther(first.here, then.here)

    @functools.cached_property
    def processes(self):
        """Return the `BothProcesses` that performs both exchanges among the processes of a
        group."""
        from .torch_both import BothProcesses  # imported on first use

        first, then = (phase.processes for phase in self._both)
        return BothProcesses(first, then, self.features)

    @property
    def phases(self):
        """Return both exchanges, in order."""
        return self._both

    def source_shape(self, device_id):
        """Return the exact shape of the source shard on a device."""
        return self._both[0].source_shape(device_id)

    def target_shape(self, device_id):
        """Return the exact shape of the target shard on a device."""
        return self._both[1].target_shape(device_id)

    def self_check(self):
        """Check both exchanges and return the facts checked; exit on a fault."""
        for phase in self._both:  # prove both first: a self-check that runs nothing exits
            proved(phase.here)
        return "; ".join(phase.self_check() for phase in self._both)


class _OneAfterOther(Together):
    """Two successive reshards in one address space."""

    def __init__(self, first, then):
        self._first, self._then = first, then

    def local(self, shards, outs, programs=None):
        """Return the target shards, given the source shards."""
        return self._then.local(self._first.local(shards, [None], programs), outs, programs)
