"""The parts of target shards that devices already hold."""

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
