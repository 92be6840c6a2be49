"""Peers of devices that all send and receive equally many tiles of one shape."""

from .exchanges import Exchange


class Permuted:
    """Peers of a reshard in which every device sends as many tiles of one shape as it receives, on
    meshes of one device order. `sender`, `receiver`: the position at the other end of a device's
    tile number < `count`, possibly the device itself."""

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
