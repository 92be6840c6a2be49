"""What processes do in two reshards, the second of what the first makes."""

from .torch_processes import Processes


class BothProcesses(Processes):
    """Processes of a group, in one reshard and then in another."""

    def __init__(self, first, then, features):
        self._first, self._then, self.features = first, then, features

    def call(self, shards, group, outs, asked, **more):
        """Make a call, in a generator that returns the target shard of this rank."""
        parts = yield from self._first.call(shards, group, None, asked, **more)
        return (yield from self._then.call(parts, group, outs, asked))
