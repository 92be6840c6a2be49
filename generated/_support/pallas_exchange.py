"""The transfers within a kernel as an `Exchange`, for groups and for checks of routes."""

from .cuts import Cut, CutExchange
from .exchanges import Exchange


def exchange_of(peers):
    """Return the transfers of a `Peers`."""

    def end(position, piece=None):
        return (position, piece) if peers.pieces else position

    def senders(receiver):
        """Yield the positions from which the parts of a target shard come, including the
        receiver's own; if tiles are cut, pairs of a position and a piece index, None for a whole
        tile."""
        me, _ = peers.here(peers.order, peers.target_rank(receiver, peers.order))
        for number in range(peers.incoming_count(receiver)):
            found = peers.incoming(receiver, me, number)
            if found.moves:
                yield end(found.peer, found.piece)
            elif peers.kept and number % peers.count == 0 and peers.holds(me, found.shard):
                yield end(me)

    def receivers(sender):
        """Yield the positions that need parts of a source shard, including the sender's own."""
        _, receiver = peers.here(peers.order, peers.source_rank(sender, peers.order))
        if peers.kept and receiver in range(len(peers.target.ids)):
            yield end(receiver)
        for number in range(peers.outgoing_count(sender)):
            found = peers.outgoing(sender, number, peers.order)
            if found.moves:
                yield end(found.peer, found.piece)

    ends = peers.source, peers.target, senders, receivers
    terms = {"hidden": peers.target.hidden, "new": peers.target.new}
    if peers.pieces is None:
        return Exchange(*ends, **terms)
    cut = Cut(peers.pieces.pieces, peers.pieces.dim, peers.pieces.unit)
    return CutExchange(*ends, cut, **terms)
