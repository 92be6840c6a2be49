"""The parts of target shards that devices already hold, and the test for an empty shard."""

from .boxes import ranges
from .pallas_integers import is_full


def kept_by(peers, me, receiver):
    """Return whether a device holds a part of its own target shard, and the box of that part."""
    own, wanted = peers.forms.source_shard(me), peers.forms.target_shard(receiver)
    box = peers.forms.tile(*own, *wanted)
    kept = is_full(ranges(box))
    if not peers.one_order:  # a device may be in one mesh only
        kept = kept & peers.holds(me, own) & peers.within(receiver, peers.target)
    return kept, box


def is_filled(peers, receiver):
    """Return whether the target shard at a position has elements; a term without a value has
    none."""
    box, last = peers.target.box(receiver), 2 * len(peers.target.hidden)
    firsts = box[last - 2 * peers.target.new : last : 2]
    filled = is_full([*ranges(box), *((first, 1) for first in firsts)])
    return filled if peers.one_order else filled & peers.within(receiver, peers.target)
