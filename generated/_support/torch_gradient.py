"""The gradient of an emitted reshard: the reverse reshard, in the sibling module."""

import functools
import importlib

from .torch_moved import Moved


class Gradient:
    """The gradient of a reshard; `name`: the module of the reverse reshard, in `package`."""

    def __init__(self, package, name):
        self._package, self._name = package, name

    @functools.cached_property
    def reverse(self):
        """Import the module of the reverse reshard. Raise RuntimeError if it is missing."""
        name = f"{self._package}.{self._name}" if self._package else self._name
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            said = f"the gradient of this reshard is in {name}, which is missing"
            raise RuntimeError(said) from None

    def reshard_local(self, host, shards, programs):
        """Return the differentiable target shards, given source shards in one address space."""
        moved = Moved.apply(
            lambda given: host.here.local([given], [None], programs)[0],
            lambda gradients: self.reverse.reshard_local(gradients, programs=programs),
            *shards,
        )
        return list(moved)

    def reshard(self, host, shard, group, outs, how):
        """Return this rank's differentiable target shard."""

        def forth(shards):
            return host.processes.reshard(shards, group, outs, how, wants_gradient=True)

        def back(gradients):
            return [self.reverse.reshard(*gradients, group, **how._asdict())]

        return Moved.apply(forth, back, shard)[0]
