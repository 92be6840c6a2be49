"""Two successive reshards among the processes of a group."""

from .torch_processes import Processes


class BothProcesses(Processes):
    """Two successive reshards among the processes of a group: `then` reshards the result of
    `first`."""

    def __init__(self, first, then, features):
        self._first, self._then, self.features = first, then, features

    def call(self, shards, group, outs, asked, **more):
        """Make both calls, as a generator like that of `Processes.call`."""
        parts = yield from self._first.call(shards, group, None, asked, **more)
        return (yield from self._then.call(parts, group, outs, asked))
