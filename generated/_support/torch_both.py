"""Processes in two successive reshards."""

from .torch_processes import Processes


class BothProcesses(Processes):
    """The processes of a group in two successive reshards: the result of `first` is the source of
    `then`."""

    def __init__(self, first, then, features):
        self._first, self._then, self.features = first, then, features

    def call(self, shards, group, outs, asked, **more):
        """Yield between the steps of a call; the generator returns this rank's target shard."""
        parts = yield from self._first.call(shards, group, None, asked, **more)
        return (yield from self._then.call(parts, group, outs, asked))
