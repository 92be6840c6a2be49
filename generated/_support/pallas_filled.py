"""The test for an empty target shard."""

from .boxes import ranges
from .pallas_integers import is_full


def is_filled(peers, receiver):
    """Return whether the target shard at a position has elements; a term without a value has
    none."""
    box, last = peers.target.box(receiver), 2 * len(peers.target.hidden)
    firsts = box[last - 2 * peers.target.new : last : 2]
    filled = is_full([*ranges(box), *((first, 1) for first in firsts)])
    return filled if peers.one_order else filled & peers.within(receiver, peers.target)
