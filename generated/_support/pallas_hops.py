"""The pairs of devices between which the kernels of a forwarding form send."""

import numpy as np

from .pallas_steps import hop


def pairs_of_hops(program):
    """Return the ranks of senders and receivers of every hop of a program, as arrays."""
    schedule, me = program.schedule, np.arange(len(program.moves.ranks))
    ends = [hop(schedule.place(me), *way) for way in sorted({step.way for step in schedule.steps})]
    sender, place = np.tile(me, len(ends)), np.concatenate(ends)
    there = np.broadcast_to(schedule.is_device(place), place.shape)
    return sender[there], schedule.device(place)[there]
