"""Differentiable moves of tensors, with gradients of every order, and sums of strided boxes."""

from .torch_moved import Moved


def moved(forth, back, given, again=None):
    """Return the tensors that `forth` returns for `given`; `back` moves their cotangents, and
    `again` the cotangents of these, by default `forth`. All map lists to lists."""
    again = again or forth
    return list(Moved.apply(forth, lambda given: moved(back, again, given), *given))


def add(boxes, sources, targets, dtype):
    """Add boxes of source tensors, viewed as `dtype`, to boxes of target tensors, one after
    another; the tensors are contiguous."""
    for source, target, read, write, loops in boxes:
        times, *steps = zip(*loops, strict=True) if loops else ((), (), ())
        held, whole = sources[source].view(dtype), targets[target]
        part = held.as_strided(times, steps[0], held.storage_offset() + read)
        whole.as_strided(times, steps[1], write).add_(part.to(whole.dtype))
