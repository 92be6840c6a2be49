"""Reshards among the processes of a group: agreement between ranks, and the transports of tiles.

A call moves one tensor, or many on the same devices. Rank r is the r-th id of the sorted union of
both meshes.
"""

import functools
import itertools
import operator
import socket
import warnings
from typing import NamedTuple

import torch
import torch.distributed as dist

from .torch_local import NO_GRADIENT
from .torch_out import check_out, overlap
from .torch_peers import PeerMemory
from .torch_symmetric import finished, foreign, has_fabric, in_a_line, in_group, shared
from .torch_tensors import capturing, check_few, on, requires_grad, stream
from .torch_wire import Wire, call_of, unpacked
from .triton_listed import Listed, copy_kernel, entries_of

# The end of the message about a fault on one rank in a call after the first without `check`, in
# which ranks do not report faults to each other.
WAIT = "other ranks may wait until they time out; with check=True on all ranks, all raise"

ITS_ONE = operator.itemgetter(0)
APART = (
    "some devices are in one mesh only, and autograd skips the backward pass of a rank without a "
    "result: call this in torch.no_grad(), and send gradients back by the reverse reshard "
    "(docs/groups.md, Gradients)"
)


class Asked(NamedTuple):
    """The options of a call: see `Reshard.reshard`."""

    transport: str | None = None
    check: bool = False
    programs: int | None = None
    async_op: bool = False


def reshard_among(host, shard, group, out, asked):
    """Reshard among processes, with a gradient if `shard` requires one: see `Reshard.reshard`."""
    outs, how, fault = None if out is None else [out], Asked(**asked), ""
    if requires_grad([shard]):
        if host.gradient is not None:
            return host.gradient.reshard(host, shard, group, outs, how)
        fault = NO_GRADIENT
    return host.processes.reshard([shard], group, outs, how, ITS_ONE, fault=fault)


class Processes(PeerMemory):
    """The reshards `moves` among processes (see `Together`). `plan`: text that must agree on all
    ranks; `puller`: by default `listed_puller`, which copies listed rows with `kernel`; `features`:
    optional parts of the module, by name."""

    def __init__(self, moves, plan, puller=None, names=("",), features=(), kernel=copy_kernel):
        super().__init__(moves, puller or self.listed_puller, names, features=features)
        self.plan = plan
        self.listed = functools.cache(
            lambda device_id, home: Listed(self._pulled(device_id), home, kernel)
        )
        self._wire = functools.cache(lambda *given: Wire(moves, *given))

    def _pulled(self, device_id):
        """Yield the entries that fill a device's target shards. Source memory blocks are
        numbered by tensor and source position, target memory blocks by tensor. Each device
        starts with the shard of the next device and ends with its own, so that devices read
        different shards at the same time."""
        positions, receiver = (
            len(self.exchange.source.ids),
            self.exchange.target_position(device_id),
        )
        own = self.exchange.source_position(device_id)
        first = receiver if own < 0 else own + 1
        for number, move in enumerate(self.moves):
            exchange, pieces = move.exchange, move.exchange.incoming(receiver)
            into = exchange.target.box(receiver)
            for piece in sorted(pieces, key=lambda piece: (piece.sender - first) % positions):
                held, memory = exchange.source.box(piece.sender), positions * number + piece.sender
                yield from entries_of(piece.box, held, into, move.itemsize, memory, number)

    def listed_puller(self, addresses, outs, device_id, programs=None):
        """Return a function that fills a device's target shards, shaped like `outs`, by copying
        rows listed from the pieces of the exchange."""
        listed = self.listed(device_id, outs[0].device)
        sources = tuple(itertools.chain.from_iterable(addresses))

        receiver = self.exchange.target_position(device_id)

        def run(outs):
            with unpacked(self.moves, outs, receiver) as held:
                listed.copy(sources, (each.data_ptr() for each in held), programs)

        return run

    def reshard(self, shards, group, outs, asked=None, then=list, **more):
        """Return `then` of this rank's target shards in the order of the moves or, with
        `async_op`, a handle whose `wait` returns it. `more`: see `call`."""
        group, asked = in_group(group), asked or Asked()
        if not asked.async_op:
            return then(finished(self.call(shards, group, outs, asked, **more)))
        work = self.feature("async", "reshard(async_op=True)")
        given = [each for each in (*shards, *(outs or ())) if each is not None]
        home = device_of(next(iter(given), None), group)
        return work(self.call(shards, group, outs, asked, **more), home, given, group, then)

    def feature(self, name, wanted):
        """Return the implementation of a feature. Raise ValueError if the module lacks it."""
        if name not in self.features:
            how = f'features=("{name}",) in emit (--feature {name})'
            raise ValueError(f"{wanted} needs {how}")
        return self.features[name]

    def call(self, shards, group, outs, asked, *, wants_gradient=False, fault=""):
        """Make a call: a generator that yields while tiles are in flight and returns the target
        shards. `fault`: a fault already found in the arguments."""
        common = shared(group)
        under_way = common.under_way
        common.number += 1  # before anything can fail, because a failed call counts too
        try:
            if under_way is not None:  # it uses the buffers that this call would use
                under_way.wait()
            prepared = self._prepared
            if "remembered" in self.features and not (outs is None or asked.check or fault):
                prepared = self.features["remembered"].prepared(self)
            run, outs = prepared(shards, group, outs, asked, wants_gradient, fault)
            yield from run(shards, outs, group, common.number)
        except RuntimeError as error:
            said = (
                f"rank {dist.get_rank(group)} of {len(self.exchange.ranks)}, {self.plan}: {error}"
            )
            raise type(error)(said) from error
        return outs

    @torch.no_grad()
    def _prepared(self, shards, group, outs, asked, wants_gradient, fault):
        """Return a function that moves tensors like `shards` to tensors like the results, and then
        the results. Raises ValueError for a fault on this rank or, in the first call and with
        `check`, on any rank."""
        cause = None
        try:
            home = self._check_call(shards, group, outs, asked, wants_gradient, fault)
        except Exception as error:  # any exception: in a first call the other ranks wait
            fault, home = in_a_line(error), None
            cause = None if isinstance(error, ValueError) else error
        rank, transport = dist.get_rank(group), asked.transport
        kind, by = self.kept(group).get(transport, (None, None))
        if asked.check or kind is None or (home is not None and home.type != kind):
            pushes = home is not None and self.result_place(shards, outs, group) is not None
            by = self._agree(group, fault, home, transport, wants_gradient, pushes)
            self.kept(group)[transport] = home.type, by
            if by == "exchange":
                connect(home, group)
        elif fault:
            raise ValueError(f"{fault}; {WAIT}") from cause
        device_id = self.exchange.ranks[rank]
        if outs is None:
            outs = [move.empty(device_id, home) for move in self.moves]
        way = self.by_symmetric_memory if by == "symmetric" else self.by_exchange
        return way(shards, outs, device_id, home, group, asked.programs), outs

    def _check_call(self, shards, group, outs, asked, wants_gradient, fault):
        """Check a call and return the device of its results. Raises ValueError for a fault on this
        rank."""
        if fault:
            raise ValueError(fault)
        ranks, transport = self.exchange.ranks, asked.transport
        check_few(asked.programs)
        if wants_gradient and asked.async_op:
            raise ValueError(
                "async_op does not support gradients: omit it, or detach the source shards"
            )
        if dist.get_world_size(group) != len(ranks):
            got = f"group of {dist.get_world_size(group)} ranks, expected {len(ranks)}"
            more = f"; pass group=dist.new_group(range({len(ranks)}))"
            raise ValueError(got + more * (dist.get_world_size(group) > len(ranks)))
        if transport not in (None, "symmetric", "exchange"):
            raise ValueError(f"transport {transport!r}: expected 'symmetric', 'exchange' or None")
        device_id = ranks[dist.get_rank(group)]
        wanted = outs or [None] * len(self.moves)

        def checked(move, shard, out):
            return check_rank(move, shard, out, device_id, group, wants_gradient)

        homes = {*self.each(checked, shards, wanted)}
        if len(homes) > 1:
            listed = sorted(map(str, homes))
            raise ValueError(f"got source shards on {listed}, expected all on one device")
        (home,) = homes
        if transport == "symmetric" and home.type != "cuda":
            raise ValueError(f"transport 'symmetric': got a shard on {home}, expected one on a GPU")
        buffer = None if transport == "exchange" else self.kept(group).get("buffer")
        if buffer and any(overlap(out, buffer.held) for out in outs or () if out is not None):
            raise ValueError("out shares memory with `symmetric_source`, which other ranks read")
        return home

    def _agree(self, group, fault, home, transport, wants_gradient, pushes=False):
        """Compare all ranks and return the transport to use. Raises ValueError on every rank for
        a fault on any rank, and for ranks that differ; RuntimeError if "symmetric" is requested
        but impossible."""
        try:
            shares = self._shares(home, transport)
        except Exception as error:  # the other ranks wait for a reply
            fault, shares = fault or in_a_line(error), ("", "", False)
        kind = "" if home is None else f"tensors on {home.type}"
        kind += " that require a gradient" if wants_gradient else ""
        kind += ", pushed to `symmetric_result`" if pushes else ""
        common = shared(group)
        mine = self.plan, fault, f"transport {transport!r}", kind, shares, common.number
        said = [None] * dist.get_world_size(group)
        dist.all_gather_object(said, mine, group=group)
        plans, faults, transports, kinds, hosts, numbers = zip(*said, strict=True)
        common.number = max(numbers)  # a failed call leaves ranks with different numbers
        for rank, problem in enumerate(faults):
            if problem and len(set(plans)) == 1:
                raise ValueError(f"rank {rank}: {problem}")
        for given in (plans, transports, kinds):
            for rank, other in enumerate(given):
                if other != given[0]:
                    both = f"rank 0 has {given[0]}, rank {rank} has {other}"
                    raise ValueError(f"ranks differ: {both}")
        hosts, backends, fabrics = zip(*hosts, strict=True)
        if shares[0] and transport != "exchange":
            why = next(filter(None, backends), "")
            if not why and len(set(hosts)) > 1 and not all(fabrics):
                rank = fabrics.index(False)
                why = f"rank {rank}, on {hosts[rank]}: other hosts cannot read its memory"
            why = why or self._unshared(group, home)
            if not why:
                return "symmetric"
            if transport == "symmetric":
                raise RuntimeError(f"transport 'symmetric': {why}")
            warnings.warn(f"{self.plan}: uses transport 'exchange', since {why}", stacklevel=6)
        return "exchange"

    def _shares(self, home, transport):
        """Return the host of a GPU, "" for a CPU; the reason that its symmetric memory is unusable,
        or ""; and whether other hosts can read this memory."""
        if home is None or home.type != "cuda":
            return "", "", False
        return socket.gethostname(), foreign(home), transport != "exchange" and has_fabric(home)

    def _unshared(self, group, home):
        """Return the reason why the ranks have no common symmetric memory; "" if they have."""
        try:
            self._stage(group, home)
        except RuntimeError as error:
            return str(error)
        return ""

    def by_exchange(self, shards, outs, device_id, home, group, programs):
        """Return a function that sends exactly the plan's tiles, packed unless they are sent in
        place, and makes local copies while they are in flight."""
        wire = self._wire(device_id, home, by_pairs(home, group))
        kept, place = self.kept(group), (home, stream(home))
        if place not in kept and not capturing(home):
            kept[place] = wire.buffers()
        packed, arrived = wire.buffers() if capturing(home) else kept[place]

        def run(shards, outs, group, number):
            call = call_of(number, self.plan)
            with unpacked(self.moves, outs, wire.receiver) as held:
                wire.tell(packed, call)
                wire.pack(shards, packed, programs)
                if wire.in_place:
                    told, heard = wire.messages(packed, arrived)
                    arriving = wire.parts("target", held, arrived) + heard
                    works = in_turn(wire.parts("source", shards, packed) + told, arriving, group)
                else:
                    given = wire.at_once(packed, arrived)
                    works = [dist.all_to_all_single(*given, group=group, async_op=True)]
                wire.keep(shards, held, programs)
                yield
                for work in works:
                    work.wait()
                wire.unpack(arrived, held, programs)
                wire.check(arrived, call)

        return run


def connect(home, group):
    """Make NCCL connect all ranks of a group. NCCL would otherwise connect in its first call,
    which hangs if it is a batch of messages and some rank has none."""
    if home.type == "cuda":
        dist.all_reduce(torch.zeros(1, device=home), group=group)


def by_pairs(home, group):
    """Return whether ranks can send to each other. For GPU tensors, gloo supports only
    collectives."""
    return home.type == "cpu" or "cuda:gloo" not in dist.get_backend_config(group)


def in_turn(leaving, arriving, group):
    """Start to send and receive parts, pairs (rank, bytes), in place, and return the handles.
    Parts between two ranks have the same order on both of them."""
    asked = [dist.P2POp(dist.irecv, part, group=group, group_peer=rank) for rank, part in arriving]
    asked += [dist.P2POp(dist.isend, part, group=group, group_peer=rank) for rank, part in leaving]
    if not asked:
        return []
    with on(asked[0].tensor.device):  # NCCL may hang if another GPU is current
        return dist.batch_isend_irecv(asked)


def device_of(tensor, group):
    """Return a tensor's device, or the group's communication device if the tensor is None."""
    # get_backend does not list both gloo and NCCL for a group made without a backend name.
    if tensor is None and "cuda:nccl" in dist.get_backend_config(group):
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu") if tensor is None else tensor.device


def check_rank(move, shard, out, device_id, group, wants_gradient):
    """Return the device of a rank's result. Raises ValueError for wrong arguments."""
    what = f"source shard of device {device_id}"
    here = move.exchange.source_position(device_id) >= 0
    if (shard is None) == here:
        got, expected = ("None", "a tensor") if shard is None else ("a tensor", "None")
        raise ValueError(f"{what}: got {got}, expected {expected}")
    if here:
        move.check_source(shard, device_id)
    served, home = dist.get_backend_config(group), device_of(shard, group)
    if out is not None:
        if move.exchange.target_position(device_id) < 0:
            fault = "got a tensor, expected None, because the target mesh lacks the device"
            raise ValueError(f"out of device {device_id}: {fault}")
        check_out(move, out, device_id, home, [shard] if here else [])
    apart = {*move.exchange.source.ids} != {*move.exchange.target.ids}
    if wants_gradient and (out is not None or apart):
        why = (
            APART if out is None else "out does not support gradients: omit it, or detach the shard"
        )
        raise ValueError(f"{what} requires a gradient, but {why}")
    if f"{home.type}:" not in served:
        where = f"expected one on a device that the group serves: {served}"
        raise ValueError(f"{what}: got a tensor on {home}, {where}")
    return home
