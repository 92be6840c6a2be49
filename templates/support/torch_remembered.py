"""Remembered calls among processes: a call whose tensors have the same checked properties and
addresses as those of an earlier call skips all checks and preparation."""

import torch

from .torch_launch import Launch
from .torch_symmetric import address
from .torch_tensors import capturing, stream

# The maximum number of calls remembered for a group, each with different tensors.
MOST_CALLS = 64
PLAIN = torch.Tensor, torch.nn.Parameter  # tensor classes that override no operations


class Remembered:
    """The feature that makes `Reshard` and `Processes` remember calls."""

    launch = Launch

    @staticmethod
    def prepared(processes):
        """Return a function that replaces `_prepared` and returns a remembered call if it can."""

        def prepare(shards, group, outs, asked, *more):
            calls, given = processes.kept(group)["calls"], facts_of(asked, shards, outs)
            try:
                run = calls.get(given)
            except TypeError:  # the options cannot be hashed: `_prepared` reports them
                given = run = None
            if run is None:
                run, outs = processes._prepared(shards, group, outs, asked, *more)
                if given is not None:
                    if len(calls) == MOST_CALLS:
                        del calls[next(iter(calls))]  # the oldest
                    calls[given] = run
            return run, outs

        return prepare


def facts_of(asked, shards, outs):
    """Return the options and all checked properties of a call's tensors, as the key of a remembered
    call; None if the call must not be remembered."""
    found, home = [asked], None
    for tensor in (*shards, *outs):
        seen = facts(tensor)
        if seen is False:
            return None
        found.append(seen)
        home = seen[3] if home is None and seen else home
    if home is None or capturing(home):
        return None
    return stream(home), *found


def facts(tensor):
    """Return the address and the checked properties of a tensor, None for None, and False for a
    tensor of a class not in `PLAIN`."""
    if tensor is None:
        return None
    if type(tensor) not in PLAIN:
        return False
    where = tensor.data_ptr() or address(tensor), tensor.shape, tensor.stride(), tensor.device
    return *where, tensor.dtype, tensor.requires_grad, tensor.is_neg()
