"""Transfers in which all devices send and receive the same number of tiles, all of one shape."""

import functools
import itertools

from .boxes import common, extents, ranges
from .spread import spread


class Permuted:
    """The transfers of a reshard, on meshes of one device order, in which every device sends and
    receives `count` tiles of one shape. `sender(position, number)` and
    `receiver(position, number)` return the position at the other end of a device's tile,
    possibly its own."""

    order = None

    def __init__(self, source, target, sender, receiver, count):
        self.source, self.target, self.count = source, target, count
        self.sender, self.receiver, self.proof = sender, receiver, self
        self.axes = tuple(name for name, _ in source.axes)

    def senders(self, position):
        """Return the positions from which the tiles of a target shard come."""
        return [self.sender(position, number) for number in range(self.count)]

    def receivers(self, position):
        """Return the positions to which the tiles of a source shard go."""
        return [self.receiver(position, number) for number in range(self.count)]

    def fault(self):
        """Return the first fault: a tile that only one end lists, or a target shard that its tiles
        do not fill; "" if there is none."""
        come, leave = map(functools.cache, (self.senders, self.receivers))
        for position in spread(len(self.target.ids)):
            device, whole = f"device {self.target.ids[position]}", self.target.box(position)
            tiles = [common(self.source.box(peer), whole) for peer in come(position)]
            if not is_filled(whole, tiles):
                return f"{device}: its tiles do not fill its shard, each place once"
            if any(leave(peer).count(position) != 1 for peer in come(position)):
                return f"{device}: it waits for a tile that its sender does not send"
            if any(come(peer).count(position) != 1 for peer in leave(position)):
                return f"{device}: it sends a tile that its receiver does not expect"
        return ""

    @functools.cached_property
    def exchange(self):
        """Return the same transfers as an `Exchange`."""
        from .exchanges import Exchange  # only groups and partial offsets need it

        ends = self.source, self.target, self.senders, self.receivers
        return Exchange(*ends, hidden=self.target.hidden)


def is_filled(box, tiles):
    """Return whether tiles of one shape fill a box, each place once."""
    shape = extents(tiles[0])
    ends = zip(ranges(box), shape, strict=True)
    starts = itertools.product(*(range(low, high, max(size, 1)) for (low, high), size in ends))
    return {*map(extents, tiles)} == {shape} and sorted(each[::2] for each in tiles) == [*starts]
