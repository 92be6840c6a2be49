"""Reshards of many tensors at once: one launch a device, or one exchange among processes."""

import functools
import importlib
import itertools
import math

import torch

from .boxes import rows_of
from .torch_check import self_check
from .torch_processes import Processes, said_of
from .torch_tensors import has_kernels, join_streams, let_read, requires_grad
from .triton_listed import Listed, constants, copy_kernel, entries_of


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
        self.members, self._moves = members, tuple(members.values())
        self.exchange = self._moves[0].exchange
        said = f"plan {plan} of {len(members)} tensors"
        self.processes = Processes(self._moves, said, self._pull, tuple(members))
        self.kernel = copy_kernel
        self.listed = functools.cache(lambda *given: Listed(self.pulled(given[0]), given[1]))

    def reshard_local(self, shards, *, out=None):
        """Return the target shards of every tensor, by name, as each tensor's own `reshard_local`
        gives them: one launch a device for all tensors."""
        fault = self._fault(shards, out, itertools.chain.from_iterable(shards.values()))
        if fault:
            raise ValueError(fault)
        with torch.no_grad():
            return self._reshard_local(shards, out)

    def _reshard_local(self, shards, out):
        held = self._each(lambda name, move: move.by_position(list(shards[name])))
        homes = {shard.device for each in held.values() for shard in each}
        wanted = dict.fromkeys(self.members) if out is None else out
        results = self._each(lambda name, move: move.results(held[name], wanted[name], homes))
        for reader, owner in itertools.permutations(homes, 2):
            let_read(reader, owner)
        join_streams(homes)
        for number, device_id in enumerate(sorted(self.exchange.target.ids)):
            mine = [results[name][number] for name in self.members]
            if has_kernels(mine[0], copy_kernel):
                self._pull(
                    [[t.data_ptr() for t in each] for each in held.values()], mine, device_id
                )
                continue
            receiver = self.exchange.target_position(device_id)
            for move, each, tensor in zip(self._moves, held.values(), mine, strict=True):
                move.copy_parts(each, tensor, receiver)
        join_streams(homes)
        return results

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

    def _each(self, function):
        """Return what a function of name and move returns, by name."""
        found = {}
        for name, move in self.members.items():
            with said_of(name):
                found[name] = function(name, move)
        return found

    def self_check(self):
        """Return what is right about this module; exit with what is wrong."""
        return self_check(self.reshard_local, self.members)

    def constants(self):
        """Return what the kernel is compiled with where memory begins at multiples of 16 bytes."""
        ids = self.exchange.target.ids
        return constants(math.gcd(*(self.listed(each, "cpu").divisor for each in ids)))

    def pulled(self, device_id):
        """Yield the entries of a device's target shards out of shards: a memory a tensor and source
        position, and one a tensor."""
        positions = len(self.exchange.source.ids)
        receiver = self.exchange.target_position(device_id)
        for number, move in enumerate(self._moves):
            for piece in move.exchange.incoming(receiver):
                held = move.exchange.source.box(piece.sender)
                rows = rows_of(piece.box, held, move.exchange.target.box(receiver))
                memory = number * positions + piece.sender
                yield from entries_of(rows, move.itemsize, memory, number)

    def _pull(self, addresses, outs, device_id):
        sources = itertools.chain.from_iterable(addresses)
        listed = self.listed(device_id, outs[0].device)
        listed.copy(sources, (out.data_ptr() for out in outs))
