"""The spread form: several devices forward whole source shards."""

from .pallas_routed import Routed


class Spread(Routed):
    """A forwarding form whose slots hold whole source shards, forwarded unchanged. Slot arrives[n]
    ends with the shard of the device offsets[n] behind."""

    form = "spread"
    spreads = True

    def _start(self, x, *_):
        """Return the initial slots: the first has the source shard."""
        return self.filled(self.schedule.slots, 1, lambda number: (number, x), x.dtype)

    def _window(self, slot, piece):
        """Return the tile in the source shard in a slot, with the rest of its window."""
        return self.window_at(self.slot.unpacked(slot), piece.box, self.host.source.box(piece.peer))
