"""Processes in two successive reshards."""

from .torch_processes import Processes


class BothProcesses(Processes):
    """A group's processes in two successive reshards."""

    def __init__(self, first, then, features):
        self._first, self._then, self.features = first, then, features

    def call(self, shards, group, outs, asked, **more):
        """Run a call, in a generator that returns this rank's target shard."""
        parts = yield from self._first.call(shards, group, None, asked, **more)
        return (yield from self._then.call(parts, group, outs, asked))
