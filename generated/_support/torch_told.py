"""What a message says of a wrong source shard."""

from .boxes import ranges


def part_of(move, device_id, rank):
    """Return which part of a tensor of so many dimensions a device has, and how to split it so."""
    source = move.exchange.source
    box = source.box(source.position(device_id, "source"))[: 2 * rank]
    what = f", x[{', '.join(f'{low}:{high}' for low, high in ranges(box))}] of a whole x"
    if len({move._shape(source.box(place)) for place in range(len(source.ids))}) > 1:
        what += " (to split as torch does, emit with --source-split nested, as JAX, flat)"
    return what
