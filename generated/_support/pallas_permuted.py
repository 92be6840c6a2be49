"""Transfers in which all devices send and receive the same number of tiles, all of one shape."""

from .exchanges import Exchange


class Permuted:
    """The transfers of a reshard, on meshes of one device order, in which every device sends and
    receives `count` tiles of one shape. `sender(position, number)` and `receiver(position, number)`
    return the position at the other end of a device's tile, possibly the device itself."""

    order = None

    def __init__(self, source, target, sender, receiver, count):
        self.axes = tuple(name for name, _ in source.axes)
        self.sender, self.receiver, self.count = sender, receiver, count
        numbers = range(count)
        self.exchange = Exchange(
            source,
            target,
            lambda position: [sender(position, number) for number in numbers],
            lambda position: [receiver(position, number) for number in numbers],
            hidden=target.hidden,
        )
