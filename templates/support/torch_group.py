"""Reshards of many tensors at once: one launch a device, or one exchange among processes."""

import importlib
import itertools
import math

from .torch_check import self_check
from .torch_processes import Processes
from .torch_tensors import requires_grad
from .triton_listed import constants, copy_kernel


def members_of(package, plans):
    """Return the hosts of bundles beside a group's own, by name; `plans`: the hash of each.

    Raises ImportError for a bundle that is missing or has another plan.
    """
    root, found = package.rpartition(".")[0], {}
    for name, plan in plans.items():
        try:
            module = importlib.import_module(f"{root}.{name}.triton_gpu")
        except ModuleNotFoundError as error:
            said = f"{error.name} is missing: a group needs the bundles of its tensors beside it"
            raise ImportError(said) from error
        if plan != module.PLAN:
            said = f"{module.__name__} has plan {module.PLAN}, expected {plan}: emit it again"
            raise ImportError(said)
        found[name] = module._HOST
    return found


class Group:
    """Tensors on the same devices by name; results carry no gradient."""

    def __init__(self, members, plan):
        self.members, self.kernel = members, copy_kernel
        moves, said = tuple(members.values()), f"plan {plan} of {len(members)} tensors"
        self.exchange = moves[0].exchange
        self.processes = Processes(moves, said, names=tuple(members))

    def reshard_local(self, shards, *, out=None):
        """Return the target shards of every tensor, by name, as each tensor's own `reshard_local`
        gives them: one launch a device for all tensors."""
        fault = self._fault(shards, out, itertools.chain.from_iterable(shards.values()))
        if fault:
            raise ValueError(fault)
        given = [list(shards[name]) for name in self.members]
        outs = [None if out is None else out[name] for name in self.members]
        return dict(zip(self.members, self.processes.local(given, outs), strict=True))

    def reshard(self, shards, group=None, *, out=None, transport=None, check=False):
        """Return this device's target shards, by name, exchanged with the other processes of a
        group.

        As each tensor's own `reshard`, whose docstring says what the arguments mean, but all
        tensors in one exchange; `shards` and `out` are dicts by name.
        """
        fault = self._fault(shards, out, shards.values())
        given = [shards.get(name) for name in self.members]
        outs = None if out is None else [out.get(name) for name in self.members]
        moved = self.processes.reshard(given, group, outs, transport, check, fault=fault)
        return dict(zip(self.members, moved, strict=True))

    def _fault(self, shards, out, tensors):
        """Return what is wrong with the names of what is given, or with gradients."""
        for given, what in ((shards, "source shards"), (out, "out")):
            if given is not None and set(given) != set(self.members):
                return f"{what} of {sorted(given)}, expected those of {sorted(self.members)}"
        return (
            "a group has no gradient: call it in torch.no_grad()" if requires_grad(tensors) else ""
        )

    def self_check(self):
        """Return what is right about this module; exit with what is wrong."""
        return self_check(self.processes)

    def constants(self):
        """Return what the kernel is compiled with where memory begins at multiples of 16 bytes."""
        ids = self.exchange.target.ids
        return constants(math.gcd(*(self.processes.listed(each, "cpu").divisor for each in ids)))
