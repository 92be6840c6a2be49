"""The cotangents of an emitted matmul, which two sibling modules compute as matmuls."""

import importlib

import torch


class Cotangents:
    """The cotangents of lhs and rhs. `modules`: the names of the modules, in the package of the
    matmul, that compute them."""

    def __init__(self, *modules):
        self.modules = modules

    def multiplied(self, host, group, *given):
        """Multiply operands with support for gradients, and return a tuple of result shards.
        `given`: this rank's lhs and rhs shards or, if `group` is None, the lhs shards and then
        the rhs shards of all devices."""
        return _Multiplied.apply(self, host, group, *given)

    def of(self, host, given, c_bar, group):
        """Return the cotangents of the operand shards `given`; `c_bar`: the cotangents of the
        result's shards."""
        package, half = host.name.rpartition(".")[0], len(given) // 2
        first, second = (importlib.import_module(f"{package}.{each}") for each in self.modules)
        # The siblings multiply in the dtype of the result.
        given = [x.transpose(-1, -2).to(host.out_dtype).contiguous() for x in given]
        a, b = given[:half], given[half:]
        c_bar = [each.resolve_neg().contiguous() for each in c_bar]
        if group is None:
            found = first.matmul_local(c_bar, b) + second.matmul_local(a, c_bar)
        else:
            found = [first.matmul(*c_bar, *b, group), second.matmul(*a, *c_bar, group)]
        return [each.to(host.dtype) for each in found]


class _Multiplied(torch.autograd.Function):
    @staticmethod
    def forward(ctx, cotangents, host, group, *given):
        ctx.given = cotangents, host, group
        ctx.save_for_backward(*given)
        half = len(given) // 2
        if group is None:
            return tuple(host.call_local(given[:half], given[half:]))
        return (host.ranks.call(*given, group),)

    @staticmethod
    def backward(ctx, *c_bar):
        cotangents, host, group = ctx.given
        return None, None, None, *cotangents.of(host, ctx.saved_tensors, c_bar, group)
