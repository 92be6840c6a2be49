"""The torch autograd function that moves tensors."""

import torch


class Moved(torch.autograd.Function):
    """Shards moved by `forth`, with gradients moved by `back`; both map lists to lists."""

    @staticmethod
    def forward(ctx, forth, back, *shards):
        ctx.back = back
        return tuple(forth(list(shards)))

    @staticmethod
    def backward(ctx, *gradients):
        return None, None, *ctx.back([each if each is None else _plain(each) for each in gradients])


def _plain(x):
    """Make a tensor usable by kernels: contiguous, and without a pending conjugation or
    negation."""
    return x.resolve_conj().resolve_neg().contiguous()
