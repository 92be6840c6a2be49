"""Reshards of many tensors at once, in one launch on each device or one exchange among
processes."""

import functools
import hashlib

from .groups import flat, order_of, rebuilt
from .torch_check import self_check
from .torch_handed import handed_over
from .torch_local import NO_GRADIENT
from .torch_moved import Moved
from .torch_processes import Asked, Processes
from .torch_symmetric import in_a_line
from .torch_tensors import check_few, requires_grad


class Group:
    """Tensors on the same devices that move together. `kinds`: the hosts of the distinct bundles;
    `kind_of`: for each name, the index of its host in `kinds`; `kernel`: the kernel that copies
    listed rows of all tensors."""

    def __init__(self, names, kinds, kind_of, kernel):
        self.names, self.kinds, self.kind_of, self.kernel = names, kinds, kind_of, kernel
        moves = tuple(kinds[kind] for kind in kind_of)
        self.members, self.exchange = dict(zip(names, moves, strict=True)), moves[0].exchange
        plans = repr((names, kind_of, [kind.processes.plan for kind in kinds]))
        plan = hashlib.sha256(plans.encode()).hexdigest()[:16]
        every = [set(kind.features) for kind in kinds]
        shared = {n: each for n, each in kinds[0].features.items() if all(n in s for s in every)}
        self.features = shared
        self.processes = Processes(
            moves, f"plan {plan} of {len(names)} tensors", None, names, shared, kernel
        )
        self._floats = [n for n, move in enumerate(moves) if move.dtype.is_floating_point]

    def reshard_local(self, shards, *, out=None, programs=None):
        """Return the target shards of every tensor, in a container of the same form. One launch on
        each device moves all tensors. The results equal those of each tensor's own `reshard_local`.

        `shards`: a list in the order of NAMES, or a dict, possibly nested, whose keys, joined by
        dots, become the names if underscores replace dots and other symbols: `layer0.wq` becomes
        `layer0_wq`; each entry has the tensor's shards, sorted by device id. `out` has the same
        form. `programs`: as in a tensor's own `reshard`, but without extra threads.
        """
        check_few(programs)
        given, give_back = self._ordered(shards, "source shards", _is_shards)
        outs = [None] * len(given)
        if out is not None:
            outs, _ = self._ordered(out, "out", _is_shards)
        tensors = _joined(given)
        fault = self._no_gradient(tensors, out)
        if fault:
            raise ValueError(fault)
        if not requires_grad(tensors):
            return give_back(self.processes.local(given, outs, programs))
        sources, targets = (len(side.ids) for side in (self.exchange.source, self.exchange.target))
        for name, each in zip(self.names, given, strict=True):
            if len(each) != sources:
                raise ValueError(f"{name}: got {len(each)} source shards, expected {sources}")

        def forth(shards):
            return _joined(self.processes.local(_parted(shards, sources), outs, programs))

        def back(gradients):
            given, reverse = _parted(gradients, targets), self._reverse.processes
            moved = reverse.local([given[n] for n in self._floats], [None] * len(self._floats))
            found = dict(zip(self._floats, moved, strict=True))
            return _joined(found.get(n, [None] * sources) for n in range(len(self.names)))

        return give_back(_parted(Moved.apply(forth, back, *tensors), targets))

    def reshard(self, shards, group=None, *, out=None, **asked):
        """Return this device's target shards, exchanged with the other processes of a group, in a
        container of the same form.

        Works like each tensor's own `reshard`, whose docstring explains the arguments, but moves
        all tensors in one exchange. `shards` and `out` are as for `reshard_local`, with one shard
        for each tensor, or None if the rank has none. If `shards` is None, the result is a dict by
        name.
        """
        shards = dict.fromkeys(self.names) if shards is None else shards
        given, outs, fault, give_back = [None] * len(self.names), None, "", list
        how = Asked(**asked)
        try:
            given, give_back = self._ordered(shards, "source shards", _is_nothing)
            outs = None if out is None else self._ordered(out, "out", _is_nothing)[0]
            fault = self._no_gradient(given, out)
        except Exception as error:  # all ranks must learn of the error
            fault = in_a_line(error)

        def forth(shards, **more):
            return self.processes.reshard(shards, group, outs, how, fault=fault, **more)

        def back(gradients):
            wanted = [gradients[n] for n in self._floats]
            moved = self._reverse.processes.reshard(wanted, group, None, how)
            found = dict(zip(self._floats, moved, strict=True))
            return [found.get(n) for n in range(len(self.names))]

        if fault or not requires_grad(given):
            return forth(given, then=give_back)
        wanting = functools.partial(forth, wants_gradient=True)
        return give_back(Moved.apply(wanting, back, *given))

    def _ordered(self, tree, what, is_leaf):
        """Return the leaves of a container in the order of names, and a function that puts other
        leaves in their place."""
        found = [*flat(tree, is_leaf)]
        places = order_of([path for path, _ in found], self.names, what)

        def give_back(leaves):
            by_place = dict(zip(places, leaves, strict=True))
            return rebuilt(tree, is_leaf, (by_place[place] for place in range(len(found))))

        return [found[place][1] for place in places], give_back

    def _no_gradient(self, tensors, out):
        """Return the reason why a required gradient cannot be computed; "" if it can."""
        if not requires_grad(tensors):
            return ""
        if out is not None:
            return "out does not support gradients: omit it, or detach the source shards"
        moves = list(self.members.values())
        return NO_GRADIENT if any(moves[n].gradient is None for n in self._floats) else ""

    @functools.cached_property
    def _reverse(self):
        """Return the group that moves gradients."""
        used = sorted({self.kind_of[number] for number in self._floats})
        kind_of = [used.index(self.kind_of[number]) for number in self._floats]
        names = [self.names[number] for number in self._floats]
        kinds = [self.kinds[kind].gradient.reverse._HOST for kind in used]
        return Group(names, kinds, kind_of, self.kernel)

    def self_check(self):
        """Check the transfers of all tensors and return the facts checked. Exit on a fault."""
        return self_check(self.processes, handed_over)


def _is_nothing(_):
    """Return False, because every list is a container and not a leaf."""
    return False


def _is_shards(value):
    """Return whether a list contains the shards of one tensor, rather than an entry for each
    tensor."""
    return not any(isinstance(each, dict | list | tuple) for each in value)


def _parted(shards, count):
    return [list(shards[at : at + count]) for at in range(0, len(shards), count)]


def _joined(parts):
    return [shard for part in parts for shard in part]
