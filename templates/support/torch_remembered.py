"""Calls among processes that are remembered: with tensors that lie where those of some call before
did, alike in all that is checked, nothing is checked, looked up or listed again."""

import torch

from .torch_launch import Launch
from .torch_symmetric import address
from .torch_tensors import capturing, stream

# So many calls of a group are remembered, each with other tensors.
MOST_CALLS = 64
PLAIN = torch.Tensor, torch.nn.Parameter  # classes of tensors that do nothing of their own


class Remembered:
    """What `Reshard` and `Processes` do where calls are remembered."""

    launch = Launch

    @staticmethod
    def prepared(processes):
        """Return what prepares a call unless it is remembered."""

        def prepare(shards, group, outs, asked, *more):
            calls, given = processes.kept(group)["calls"], facts_of(asked, shards, outs)
            try:
                run = calls.get(given)
            except TypeError:  # what was asked is of a kind that cannot be, as `_prepared` says
                given = run = None
            if run is None:
                run, outs = processes._prepared(shards, group, outs, asked, *more)
                if given is not None:
                    if len(calls) == MOST_CALLS:
                        del calls[next(iter(calls))]  # the one that was made first
                    calls[given] = run
            return run, outs

        return prepare


def facts_of(asked, shards, outs):
    """Return all that is checked of the tensors of a call, None where they are to be checked."""
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
    """Return all of a tensor but its elements, None of None, and False of what is no plain one."""
    if tensor is None:
        return None
    if type(tensor) not in PLAIN:
        return False
    where = tensor.data_ptr() or address(tensor), tensor.shape, tensor.stride(), tensor.device
    return *where, tensor.dtype, tensor.requires_grad, tensor.is_neg()
