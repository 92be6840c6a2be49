"""Steps of a plan as boxes, in plain JAX.

BEFORE and AFTER describe the sides of a step: for each dimension its extent and, for each cut, the
position digits that cut it (see `xla_steps`). SENDERS has the digits that number the holders of a
shard, the digits that number its receivers, the number of pieces into which holders cut a box, the
dimension of this cut, and the unit of which piece starts are multiples. `ids`: the device orders of
both sides, if they differ.
"""

import functools
import itertools
import math

import jax.numpy as jnp
from jax import lax

from .cuts import Cut, CutExchange
from .sides import Side
from .xla_rounds import Round, boxes_of
from .xla_steps import number_of


def _range(dim, position):
    """Return a position's range of a dimension by applying one cut after another."""
    extent, cuts = dim
    low, high = 0, extent
    for digits in cuts:
        width = -(-(high - low) // math.prod(size for _, size in digits))
        low = min(low + number_of(digits, position) * width, high)
        high = min(low + width, high)
    return low, high


def _turn(senders, after, receiver, piece):
    """Return which holder sends a piece to a receiver: the number that its holder digits form."""
    holders, receivers, pieces, cut, _ = senders
    turns = math.prod(size for _, size in holders) // pieces
    number = number_of(receivers, receiver)
    if pieces == 1:
        return number % turns
    shift = number // turns + number_of(itertools.chain(*after[cut][1]), receiver)
    return number % turns + turns * ((piece + shift) % pieces)


def _moves(devices, before, after, senders, reduces, ids):
    """Return the exchange of a step. A receiver keeps data that it already holds, except in a
    reduction, in which it takes the box of every term."""
    from_ids, to_ids = ids or (range(devices), range(devices))
    source, target = (_side(*side) for side in ((from_ids, before), (to_ids, after)))
    holders: dict[int, list[int]] = {}
    for position in range(devices):
        holders.setdefault(number_of(senders[0], position), []).append(position)

    def givers(receiver):
        me = from_ids.index(to_ids[receiver])
        for piece in range(senders[2]):
            for sender in holders[_turn(senders, after, receiver, piece)]:
                if reduces or source.box(sender) != source.box(me):
                    yield sender, piece
                elif piece == 0:
                    yield me, None

    return CutExchange(source, target, givers, None, Cut(*senders[2:]))


def _side(ids, dims):
    @functools.cache
    def box(position):
        return tuple(end for dim in dims for end in _range(dim, position))

    return Side(ids, box)


@functools.cache
def _rounds(devices, *step):
    """Return the rounds of a step; all boxes of a round have one shape."""
    rounds: list[tuple] = []
    boxes = boxes_of(_moves(devices, *step), by_id=True)
    for box in sorted(boxes, key=lambda box: (box.receiver - box.sender) % devices):
        for shape, sent, taken in rounds:
            if shape == box.shape and box.sender not in sent and box.receiver not in taken:
                break
        else:
            sent, taken = {}, {}
            rounds.append((box.shape, sent, taken))
        sent[box.sender] = taken[box.receiver] = box
    return [Round.of(list(sent.values()), devices) for _, sent, _ in rounds]


def moved_by_boxes(x, axes, devices, before, after, senders, ids=None, reduce=None, empty=0):
    """Return the shard after a step by boxes, given the shard `x` before it.

    `reduce`: a function that combines an element with an arriving element; `empty`: the initial
    value of elements.
    """
    me = lax.axis_index(axes)
    # Unreduced axes are dimensions of boxes but not of shards.
    hidden = len(before) - x.ndim
    y = jnp.full([_largest(devices, dim) for dim in after[hidden:]], empty, x.dtype)
    for each in _rounds(devices, before, after, senders, reduce is not None, ids):
        seen = each._replace(
            window=each.window[hidden:],
            reads=each.reads[:, hidden:],
            writes=each.writes[:, hidden:],
        )
        y = seen.put(y, seen.arrives(x, axes, me), me, reduce)
    return y


def _largest(devices, dim):
    ranges = (_range(dim, position) for position in range(devices))
    return max(high - low for low, high in ranges)
