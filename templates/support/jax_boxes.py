"""Strided boxes of elements that devices in a row exchange in rounds.

Shards are flat arrays of bits. In a round each device sends and receives at most one message, and
all messages have the same forms: the source buffer, the target buffers, and nested loops, outer to
inner, each with its count and its step in each buffer, source first.
"""

import math

import jax.numpy as jnp
import numpy as np
from jax import lax


def rounds_of(relays, size):
    """Return rounds: the forms of a message, whether it stays on its device, and by sender and
    receiver the starts of its relays. `relays`: (sender, receiver, form, first element in each
    buffer); `size`: the number of devices."""
    messages: dict = {}
    for sender, receiver, form, *starts in relays:
        messages.setdefault((sender, receiver), []).append((form, starts))
    found: list = []
    for ends in sorted(messages, key=lambda ends: ((ends[1] - ends[0]) % size, ends)):
        kind = [form for form, _ in messages[ends]], ends[0] == ends[1]
        for alike, moves in found:
            if alike == kind and all(ends[0] != s and ends[1] != r for s, r in moves):
                break
        else:
            moves = {}
            found.append((kind, moves))
        moves[ends] = [starts for _, starts in messages[ends]]
    return found


def packed(shards, forms, moves, me, size):
    """Return a device's message in a round, read from its source shards."""
    reads, parts = jnp.asarray(_starts(moves, len(forms), size)[0])[me], []
    for place, (buffer, _, loops) in enumerate(forms):
        x = taken(shards[buffer], reads[place], [(times, step) for times, step, *_ in loops])
        parts.append(x.reshape(-1))
    return jnp.concatenate(parts)


def unpacked(message, results, forms, moves, me, size):
    """Write the message that a device receives in a round into `results`, its target shards."""
    writes = _starts(moves, len(forms), size)[1]
    takes, begin = np.isin(np.arange(size), [receiver for _, receiver in moves]), 0
    for (_, buffers, loops), starts in zip(forms, writes, strict=True):
        sizes = [times for times, *_ in loops]
        part = message[begin : begin + math.prod(sizes)].reshape(sizes)
        begin += math.prod(sizes)
        for number, buffer in enumerate(buffers):
            steps = [loop[2 + number] for loop in loops]
            order = sorted(range(len(loops)), key=[-step for step in steps].__getitem__)
            nest = [(sizes[n], steps[n]) for n in order]
            start, own = jnp.asarray(starts)[me, number], jnp.asarray(takes)[me]
            results[buffer] = put(results[buffer], start, nest, part.transpose(order), own)


def _starts(moves, count, size):
    """Return the start of each device's reads, and of its writes to each target buffer."""
    reads = np.zeros((size, count), np.int32)
    most = max(len(starts) for each in moves.values() for starts in each) - 1
    writes = np.zeros((count, size, most), np.int32)
    for (sender, receiver), relays in moves.items():
        for place, (read, *written) in enumerate(relays):
            reads[sender, place] = read
            writes[place, receiver, : len(written)] = written
    return reads, writes


def taken(x, start, loops):
    """Return elements of a flat array, one dimension per loop (count, step), outer to inner."""
    window = lax.dynamic_slice(x, (start,), (_reach(loops),))
    for times, step in loops:
        rows = long(window, times * step)[..., : times * step]
        window = rows.reshape(*window.shape[:-1], times, step)
    return window[..., 0]


def put(y, start, loops, part, takes):
    """Return a flat array with the elements of these loops replaced by `part`, if the device
    receives it."""
    window = lax.dynamic_slice(y, (start,), (_reach(loops),))
    window = jnp.where(takes, _replaced(window, loops, part), window)
    return lax.dynamic_update_slice(y, window, (start,))


def _replaced(window, loops, part):
    if not loops:
        return jnp.concatenate([part[..., None], window[..., 1:]], axis=-1)
    (times, step), *inner = loops
    size, width = times * step, window.shape[-1]
    rows = long(window, size)
    first = rows[..., :size].reshape(*rows.shape[:-1], times, step)
    first = _replaced(first, inner, part).reshape(*rows.shape[:-1], size)
    return jnp.concatenate([first, rows[..., size:]], axis=-1)[..., :width]


def _reach(loops):
    """Return the distance from the first to the last element, inclusive."""
    return 1 + sum((times - 1) * step for times, step in loops)


def long(x, size):
    """Return a flat array, extended to at least this size."""
    return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, max(size - x.shape[-1], 0))])


def bits(x):
    """Return an array as integers of its width; complex numbers unchanged."""
    if x.dtype == jnp.bool_:
        return x.astype(jnp.int8)
    if jnp.iscomplexobj(x):
        return x
    return lax.bitcast_convert_type(x, f"int{8 * x.dtype.itemsize}")


def of_bits(x, dtype):
    """Return integers as an array of a dtype of their width; values of that dtype unchanged."""
    if x.dtype == dtype or dtype == "bool":
        return x.astype(dtype)
    return lax.bitcast_convert_type(x, dtype)
