"""Messages about wrong tensors, and about waits of a matmul that timed out."""

import torch

from .boxes import ranges


def wrong(tensor, shape, dtype):
    """Describe the first mismatch between a tensor and a contiguous tensor of this shape and
    dtype."""
    if type(tensor).__name__ == "DTensor":
        return "got a DTensor, expected its to_local(), or use reshard_dtensor"
    if not isinstance(tensor, torch.Tensor):
        return f"got {type(tensor).__name__}, expected a torch.Tensor"
    if tuple(tensor.shape) != shape or tensor.dtype != dtype:
        return f"got {tuple(tensor.shape)} of {tensor.dtype}, expected {shape} of {dtype}"
    if not tensor.is_contiguous():
        return "got a tensor that is not contiguous, expected its contiguous()"
    return "got a lazily negated view, expected its resolve_neg()"


def awaited(member, code):
    """Describe the event that a device of a matmul waited for until the time-out. `code`: its
    number, as kernels record it."""
    ids = member.of.ids
    kind, which = divmod(code - 1, len(ids))
    if kind < 3:
        return f"{('the call before', 'the operands', 'terms')[kind]} of device {ids[which]}"
    side, part = member.incoming[code - 1 - 3 * len(ids)]
    extents = " x ".join(f"[{low}, {high})" for low, high in part.ranges)
    holders = ", ".join(str(ids[holder]) for holder in part.holders)
    several = "s" * (len(part.holders) > 1)
    name = {"a": "lhs", "b": "rhs"}[side]
    return f"{name} {extents} of device{several} {holders}"


def part_of(move, device_id, rank):
    """Describe the source shard of a device as a slice of a tensor of `rank` dimensions, and add
    advice if shards differ in shape."""
    source = move.exchange.source
    box = source.box(source.position(device_id, "source"))[: 2 * rank]
    what = f", x[{', '.join(f'{low}:{high}' for low, high in ranges(box))}] of a whole x"
    if len({move._shape(source.box(place)) for place in range(len(source.ids))}) > 1:
        what += " (a Reshard with source_split nested splits as torch does, with flat as JAX does)"
    return what
