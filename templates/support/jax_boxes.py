"""Strided boxes of elements that devices in a row exchange in rounds.

Shards are flat arrays of bits. In a round each device sends and receives at most one message. A
message has a part for each of the round's forms. A form consists of the index of the source buffer,
the indices of the target buffers, and nested loops, outer to inner. A loop consists of its count
and its step in each buffer, source first.
"""

import itertools
import math

import jax.numpy as jnp
import numpy as np
from jax import lax


def rounds_of(relays, size):
    """Return a list of rounds. A round is a pair. Its first item is the forms of its messages,
    and whether the messages stay on their devices. Its second item is a dict from (sender,
    receiver) to the first element of each form in each buffer. `relays`: tuples (sender,
    receiver, form, first element in each buffer...); `size`: the number of devices."""
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


def packed(shards, shapes, forms, moves, me, size):
    """Return a device's message in a round, read from its source shards: a flat array or, if the
    message has one part, that part in its own shape, which XLA sends without a copy. `shapes`: the
    source buffers' shapes."""
    reads, parts = starts_of(moves, len(forms), size)[0], []
    for place, (buffer, _, loops) in enumerate(forms):
        nest = [(times, step) for times, step, *_ in loops]
        parts.append(taken(shards[buffer], shapes[buffer], reads[:, place], me, nest))
    return parts[0] if len(parts) == 1 else jnp.concatenate([part.reshape(-1) for part in parts])


def unpacked(message, results, shapes, forms, moves, me, size):
    """Write the message that a device receives in a round into `results`, its target shards.
    `shapes`: the target buffers' shapes."""
    for number, (_, buffers, _) in enumerate(forms):
        for place in range(len(buffers)):
            written(message, results, shapes, forms, moves, me, size, (number, place))


def written(message, results, shapes, forms, moves, me, size, which, idle=()):
    """Write one part of a message into one target buffer; `which`: the index of the form, and the
    index of the buffer in the form. `idle`: the devices that do not run this program."""
    number, place = which
    begin = sum(math.prod(times for times, *_ in loops) for *_, loops in forms[:number])
    _, buffers, loops = forms[number]
    sizes, order = [times for times, *_ in loops], loop_order(loops, place)
    part = message.reshape(-1)[begin : begin + math.prod(sizes)].reshape(sizes).transpose(order)
    nest = [(loops[n][0], loops[n][2 + place]) for n in order]
    starts, buffer = starts_of(moves, len(forms), size)[1][number][:, place], buffers[place]
    takes = taking(moves, size, idle)
    results[buffer] = put(results[buffer], shapes[buffer], starts, me, nest, part, takes)


def loop_order(loops, place):
    """Return the indices of the loops in order of decreasing step in a target buffer."""
    return sorted(range(len(loops)), key=[-loop[2 + place] for loop in loops].__getitem__)


def taking(moves, size, idle):
    """Return a mask by device: whether the device receives a message in a round or is in `idle`."""
    return np.isin(np.arange(size), [*idle, *(receiver for _, receiver in moves)])


def starts_of(moves, count, size):
    """Return two arrays: the first element of each read, indexed [device, form], and the first
    element of each write, indexed [form, device, target buffer]. `count`: the number of forms;
    `size`: the number of devices."""
    reads = np.zeros((size, count), np.int32)
    most = max(len(starts) for each in moves.values() for starts in each) - 1
    writes = np.zeros((count, size, most), np.int32)
    for (sender, receiver), relays in moves.items():
        for place, (read, *written) in enumerate(relays):
            reads[sender, place] = read
            writes[place, receiver, : len(written)] = written
    return reads, writes


def taken(x, shape, starts, me, loops):
    """Return the elements of a flat array in the order in which the loops visit them. `loops`:
    pairs (count, step), outer to inner; `shape`: the buffer's shape; `starts`: the first element
    on each device."""
    box = box_seen(shape, starts, loops)
    if box is not None:
        shape, sizes, first = box
        return lax.dynamic_slice(x.reshape(shape), [*jnp.asarray(first)[me]], sizes)
    window = lax.dynamic_slice(x, (jnp.asarray(starts)[me],), (reach_of(loops),))
    for times, step in loops:
        rows = long(window, times * step)[..., : times * step]
        window = rows.reshape(*window.shape[:-1], times, step)
    return window[..., 0]


def put(y, shape, starts, me, loops, part, takes):
    """Return a flat array in which `part` replaces the elements that the loops visit, on devices
    where `takes` is true. `shape`: the buffer's shape; `starts`: the first element on each
    device."""
    box = box_seen(shape, starts, loops)
    if box is not None:
        shape, sizes, first = box
        index, whole, part = [*jnp.asarray(first)[me]], y.reshape(shape), part.reshape(sizes)
        if not takes.all():
            held = lax.dynamic_slice(whole, index, sizes)
            part = jnp.where(jnp.asarray(takes)[me], part, held)
        return lax.dynamic_update_slice(whole, part, index).reshape(-1)
    start = jnp.asarray(starts)[me]
    window = lax.dynamic_slice(y, (start,), (reach_of(loops),))
    window = jnp.where(jnp.asarray(takes)[me], _replaced(window, loops, part), window)
    return lax.dynamic_update_slice(y, window, (start,))


def box_seen(shape, starts, loops):
    """Return a shape of the buffer in which the elements that the loops visit form a box, the sizes
    of the box, and its first index on each device; None if no such shape is found, for instance if
    a row of a loop straddles rows of the buffer."""
    found = _box_of(shape, starts, loops)
    return _box_of((math.prod(shape),), starts, loops) if found is None else found


def _box_of(shape, starts, loops):
    dense = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
    steps = sorted({1, *dense, *(step for _, step in loops)}, reverse=True)
    wholes = [math.prod(shape), *steps]
    if any(step < 1 or whole % step for whole, step in itertools.pairwise(wholes)):
        return None
    seen = [whole // step for whole, step in itertools.pairwise(wholes)]
    sizes = [1] * len(seen)
    for times, step in reversed(loops):
        dim, left = steps.index(step), times
        while left > seen[dim]:  # fill this dimension, and continue in the previous one
            if left % seen[dim] or sizes[dim] > 1 or dim == 0:
                return None
            sizes[dim], left, dim = seen[dim], left // seen[dim], dim - 1
        if sizes[dim] > 1:
            return None
        sizes[dim] = left
    first = np.stack(np.unravel_index(starts, seen), axis=-1).astype(np.int32)
    return (seen, sizes, first) if (first + sizes <= seen).all() else None


def _replaced(window, loops, part):
    if not loops:
        return jnp.concatenate([part[..., None], window[..., 1:]], axis=-1)
    (times, step), *inner = loops
    size, width = times * step, window.shape[-1]
    rows = long(window, size)
    first = rows[..., :size].reshape(*rows.shape[:-1], times, step)
    first = _replaced(first, inner, part).reshape(*rows.shape[:-1], size)
    return jnp.concatenate([first, rows[..., size:]], axis=-1)[..., :width]


def reach_of(loops):
    """Return the number of elements from the first to the last that the loops visit, inclusive."""
    return 1 + sum((times - 1) * step for times, step in loops)


def long(x, size):
    """Pad an array with zeros at the end of its last dimension to at least this size."""
    return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, max(size - x.shape[-1], 0))])


def bits(x):
    """Return the elements as integers of the same width. Return complex arrays unchanged."""
    if x.dtype == jnp.bool_:
        return x.astype(jnp.int8)
    if jnp.iscomplexobj(x):
        return x
    return lax.bitcast_convert_type(x, f"int{8 * x.dtype.itemsize}")


def of_bits(x, dtype):
    """Reinterpret an array of integers as elements of `dtype`, which has the same width. Return
    an array of that dtype unchanged."""
    if x.dtype == dtype or dtype == "bool":
        return x.astype(dtype)
    return lax.bitcast_convert_type(x, dtype)
