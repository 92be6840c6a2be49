"""Memory that callers share with peers: source shards that are read, and results that are written,
where they are."""


class SharedMemory:
    """The functions of a module for the memory of its host."""

    def __init__(self, host):
        self._first, self._last = host.phases[0].processes, host.phases[-1].processes

    def symmetric_source(self, group=None, shard=None):
        """Return this device's source shard in symmetric memory, to be filled and given to
        `reshard`; None outside the source mesh. For GPUs that share memory. The first call for a
        group is one that every rank makes.

        With `shard`, which every rank has then, from torch.distributed._symmetric_memory.empty,
        return that: given to `reshard` on every rank, it is read where it is. Ranks that give
        `reshard` different ones wait in vain for each other. It is kept as long as the group.
        Raises RuntimeError on every rank for one that has no such memory, or a wrong shard.
        """
        return self._first.source_memory(group, shard)

    def symmetric_result(self, group=None, out=None):
        """Return memory for this device's target shard into which the other ranks write: given to
        `reshard` as `out`, on every rank, it lets tiles be pushed from where the shard is, and
        nothing is copied first, unless the shard is in symmetric memory as well. For GPUs that
        share memory. Every rank makes the first call for a group, and all those with `out`: memory
        of the caller's, as `symmetric_source` takes it.

        When `reshard` is called again, what reads the result is over, or before that on the stream.
        Raises ValueError for sums, and where some devices are in one mesh only.
        """
        return self._last.result_memory(group, out)
