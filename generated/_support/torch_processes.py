"""Reshards in one address space, and among the processes of a group: what these agree on, and the
ways for tiles to go.

One tensor or many, all on the same devices, move at once. Rank r is the r-th id of the sorted union
of both meshes.
"""

import functools
import itertools
import socket
import warnings
import weakref
from typing import NamedTuple

import torch
import torch.distributed as dist

from .torch_symmetric import Work, finished, foreign, placed, shared, symmetric
from .torch_tensors import (
    LINE,
    capturing,
    check_few,
    facts,
    join_streams,
    keep,
    let_read,
    overlap,
    stream,
)
from .torch_wire import Wire, unpacked
from .triton_listed import Listed, entries_of

# So many calls of a group are remembered, each with other tensors.
MOST_CALLS = 64
# What is wrong in a later call is not agreed upon.
WAIT = "other ranks may wait for this one until they time out, but not with check=True on all"


class Asked(NamedTuple):
    """How a call is to be made: see `Reshard.reshard`."""

    transport: str | None = None
    check: bool = False
    programs: int | None = None
    async_op: bool = False


class Processes:
    """The `moves` of some tensors, each of its own reshard. `plan` is what all ranks must have;
    `puller` returns a function that fills the target shards of a device, from the addresses of all
    source shards, by default by listed rows; `names`: what messages call the tensors."""

    def __init__(self, moves, plan, puller=None, names=("",)):
        self.moves, self.plan, self.names = moves, plan, names
        self.puller, self.exchange = puller or self.listed_puller, moves[0].exchange
        self.listed = functools.cache(lambda *given: Listed(self._pulled(given[0]), given[1]))
        self._wire = functools.cache(lambda *given: Wire(moves, *given))
        self._staging = functools.cache(
            lambda device_id, home, whole: Listed(self._staged(device_id, whole), home)
        )
        # By group, whose calls come one after another: the kind of device and the transport taken
        # by that asked for; `symmetric_buffer`; the buffers of an exchange by device and stream;
        # how tensors that came before are moved again; what other modules have as well.
        self._kept: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()

    def _of(self, group):
        kept = self._kept.get(group)
        if kept is None:
            common = shared(group)
            kept = self._kept[group] = {"shared": common, "calls": common.remembered()}
        return kept

    @torch.no_grad()
    def local(self, shards, outs, programs=None):
        """Return the target shards of each tensor from its source shards, all in one address space:
        one launch a device, of so many programs at most."""
        held = self._each(lambda move, given: move.by_position(given), shards)
        homes = {shard.device for each in held for shard in each}
        results = self._each(lambda move, *given: move.results(*given, homes), held, outs)
        for reader, owner in itertools.permutations(homes, 2):
            let_read(reader, owner)
        join_streams(homes)
        addresses = [[shard.data_ptr() for shard in each] for each in held]
        for number, device_id in enumerate(sorted(self.exchange.target.ids)):
            made = [each[number] for each in results]
            self.puller(addresses, made, device_id, programs)(made)
        join_streams(homes)
        return results

    def _each(self, function, *given):
        """Return what a function of each move, and of what is given for it, returns; a ValueError
        says which tensor it is of, if that has a name."""
        found = []
        for name, *arguments in zip(self.names, self.moves, *given, strict=True):
            try:
                found.append(function(*arguments))
            except ValueError as error:
                raise ValueError(f"{name}: {error}" if name else str(error)) from None
        return found

    def _pulled(self, device_id):
        """Yield the entries of a device's target shards out of shards: a memory a tensor and source
        position, and one a tensor."""
        positions = len(self.exchange.source.ids)
        receiver = self.exchange.target_position(device_id)
        for number, move in enumerate(self.moves):
            into = move.exchange.target.box(receiver)
            for piece in move.exchange.incoming(receiver):
                held, memory = move.exchange.source.box(piece.sender), positions * number
                memory += piece.sender
                yield from entries_of(piece.box, held, into, move.itemsize, memory, number)

    def listed_puller(self, addresses, outs, device_id, programs=None):
        """Return a function that fills target shards of a device, like `outs`, by `senders`,
        `receivers` and boxes alone."""
        listed = self.listed(device_id, outs[0].device)
        sources = tuple(itertools.chain.from_iterable(addresses))

        receiver = self.exchange.target_position(device_id)

        def run(outs):
            with unpacked(self.moves, outs, receiver) as held:
                listed.copy(sources, (each.data_ptr() for each in held), programs)

        return run

    def reshard(self, shards, group, outs, asked=None, then=list, **more):
        """Return the target shards of this rank as `then` makes them of a list in the order of the
        moves; if the call is `async_op`, what waits for that. `more`: see `call`."""
        group, asked = dist.group.WORLD if group is None else group, asked or Asked()
        if not asked.async_op:
            return then(finished(self.call(shards, group, outs, asked, **more)))
        given = [each for each in (*shards, *(outs or ())) if each is not None]
        home = device_of(next(iter(given), None), group)
        return Work(self.call(shards, group, outs, asked, **more), home, given, group, then)

    def call(self, shards, group, outs, asked, *, wants_gradient=False, fault=""):
        """Make a call, in a generator that stops while tiles are on their way, and returns the
        target shards; `fault`: what is wrong already with what it was given. Tensors that lie where
        those of some call before did, alike in all that is checked, are not checked again."""
        given = None if outs is None or asked.check or fault else _facts(asked, shards, outs)
        kept = self._of(group)
        calls, under_way = kept["calls"], kept["shared"].under_way
        try:
            if under_way is not None:  # it has what this call would use
                under_way.wait()
            run = calls.get(given)
            if run is None:
                run, outs = self._prepared(shards, group, outs, asked, wants_gradient, fault)
                if given is not None:
                    if len(calls) == MOST_CALLS:
                        calls.clear()
                    calls[given] = run
            yield from run(shards, outs, group)
        except RuntimeError as error:
            said = (
                f"rank {dist.get_rank(group)} of {len(self.exchange.ranks)}, {self.plan}: {error}"
            )
            raise type(error)(said) from error
        return outs

    @torch.no_grad()
    def _prepared(self, shards, group, outs, asked, wants_gradient, fault):
        """Return a function that moves such shards to such results, and the results. Raises
        ValueError for what is wrong with them here, or at first, and if `check`, on any rank."""
        try:
            home = self._check_call(shards, group, outs, asked, wants_gradient, fault)
        except ValueError as error:
            fault, home = str(error), None
        rank, transport = dist.get_rank(group), asked.transport
        kind, by = self._of(group).get(transport, (None, None))
        if asked.check or kind is None or (home is not None and home.type != kind):
            whole = home is not None and self._wire(self.exchange.ranks[rank], home).whole
            by = self._agree(group, fault, home, transport, wants_gradient, whole)
            self._of(group)[transport] = home.type, by
        elif fault:
            raise ValueError(f"{fault}; {WAIT}")
        device_id = self.exchange.ranks[rank]
        if outs is None:
            outs = [move.empty(device_id, home) for move in self.moves]
        ways = {"symmetric": self.by_symmetric_memory, "in place": self.in_place}
        by = ways.get(by, self.by_exchange)
        return by(shards, outs, device_id, home, group, asked.programs), outs

    def _check_call(self, shards, group, outs, asked, wants_gradient, fault):
        """Return the device of the results. Raises ValueError for what is wrong on this rank."""
        if fault:
            raise ValueError(fault)
        ranks, transport = self.exchange.ranks, asked.transport
        check_few(asked.programs)
        if wants_gradient and asked.async_op:
            raise ValueError("async_op takes no gradient: got source shards that require one")
        if dist.get_world_size(group) != len(ranks):
            got = f"group of {dist.get_world_size(group)} ranks, expected {len(ranks)}"
            more = f", as group=dist.new_group(range({len(ranks)})) has"
            raise ValueError(got + more * (dist.get_world_size(group) > len(ranks)))
        if transport not in (None, "symmetric", "exchange"):
            raise ValueError(f"transport {transport!r}: expected 'symmetric', 'exchange' or None")
        rank = ranks[dist.get_rank(group)], group, wants_gradient
        wanted = outs or [None] * len(self.moves)
        homes = {*self._each(lambda move, *given: move.check_rank(*given, *rank), shards, wanted)}
        if len(homes) > 1:
            listed = sorted(map(str, homes))
            raise ValueError(f"source shards on {listed}, expected all on one device")
        (home,) = homes
        if transport == "symmetric" and home.type != "cuda":
            raise ValueError(f"transport 'symmetric': got a shard on {home}, expected one on a GPU")
        buffer = None if transport == "exchange" else self._of(group).get("buffer")
        if buffer and any(overlap(out, buffer.held) for out in outs or () if out is not None):
            raise ValueError("out shares memory with `symmetric_source`, which others still read")
        return home

    def _agree(self, group, fault, home, transport, wants_gradient, whole):
        """Return the transport to take, "in place" of an exchange that packs nothing. Raises
        ValueError on every rank if anything is wrong on any; `whole`: see `Wire`."""
        host = socket.gethostname() if home is not None and home.type == "cuda" else ""
        kind = "" if home is None else f"tensors on {home.type}"
        kind += " that require a gradient" if wants_gradient else ""
        shares = host, host and foreign(home)
        mine = self.plan, fault, f"transport {transport!r}", kind, shares, whole
        said = [None] * dist.get_world_size(group)
        dist.all_gather_object(said, mine, group=group)
        plans, faults, transports, kinds, hosts, wholes = zip(*said, strict=True)
        for rank, problem in enumerate(faults):
            if problem and len(set(plans)) == 1:
                raise ValueError(f"rank {rank}: {problem}")
        for given in (plans, transports, kinds):
            for rank, other in enumerate(given):
                if other != given[0]:
                    both = f"rank 0 has {given[0]}, rank {rank} has {other}"
                    raise ValueError(f"ranks differ: {both}")
        hosts, backends = zip(*hosts, strict=True)
        one_host = bool(host) and len(set(hosts)) == 1
        if transport == "symmetric" and not one_host:
            raise ValueError(f"transport 'symmetric': GPUs of hosts {hosts}, expected those of one")
        if one_host and transport != "exchange":
            why = next(filter(None, backends), "") or self._unshared(group, home)
            if not why:
                return "symmetric"
            if transport == "symmetric":
                raise RuntimeError(f"transport 'symmetric': {why}")
            warnings.warn(f"{self.plan}: takes transport 'exchange', since {why}", stacklevel=6)
        return "in place" if all(wholes) else "exchange"

    def _unshared(self, group, home):
        """Return why ranks have no symmetric memory, the same on all; "" where they have."""
        try:
            self._stage(group, home)
        except RuntimeError as error:
            return str(error)
        return ""

    def by_symmetric_memory(self, shards, outs, device_id, home, group, programs):
        """Return a function that lets all ranks offer what leaves their shards, and then pull tiles
        from where they are."""
        place, starts = self._stage(group, home)
        me, copy = self.exchange.source_position(device_id), None
        if len(shards) == 1 and me >= 0:
            place = self._of(group)["shared"].offered.get(shards[0].data_ptr(), place)
        ranks = [self.exchange.ranks.index(source) for source in self.exchange.source.ids]
        addresses = [[place.addresses[rank] + start for rank in ranks] for start in starts]
        own = [0 if each is None else each.data_ptr() for each in shards]
        here = place.held.data_ptr()
        if me >= 0 and any(at != here + start for at, start in zip(own, starts, strict=True)):
            whole = any(at % LINE for at in own)  # from there tiles would not be read in lines
            copy = self._staging(device_id, home, whole).copier(tuple(own), (here,), programs)
            for each, at in zip(addresses, own, strict=True):
                each[me] = each[me] if whole else at
        pull = None
        if self.exchange.target_position(device_id) >= 0:
            pull = self.puller(addresses, outs, device_id, programs)
        if capturing(home):
            keep(place)

        def run(shards, outs, group):
            if copy is not None:
                copy()
            place.meet()
            yield
            if pull is not None:
                pull(outs)
            place.meet()

        return run

    def symmetric_buffer(self, group, home):
        """Return memory of this module alone that holds any device's source shards and that every
        rank can read; made once a group."""
        kept = self._of(group)
        if "buffer" not in kept:
            kept["buffer"] = placed(lambda: symmetric(self._starts[-1], home), group)
            kept["calls"].clear()
        return kept["buffer"].held

    def _stage(self, group, home):
        """Return where ranks offer their shards, and where each tensor's begins there."""
        kept, (*starts, size) = self._of(group), self._starts
        return kept.get("buffer") or kept["shared"].grown(size, home, group), starts

    @functools.cached_property
    def _starts(self):
        """Where the shards of each tensor begin in memory that holds all, and the end of that."""
        sizes = [-(-move.source_bytes // LINE) * LINE for move in self.moves]
        return [*itertools.accumulate(sizes, initial=0)]

    def _staged(self, device_id, whole):
        """Yield the entries that copy what others get of a device's shards, or all of them."""
        for number, move in enumerate(self.moves):
            me = move.exchange.source_position(device_id)
            held, ids = move.exchange.source.box(me), move.exchange.target.ids
            pieces = move.exchange.outgoing(me)
            leaving = (each.box for each in pieces if ids[each.receiver] != device_id)
            for box in [held] if whole else dict.fromkeys(leaving):
                start = self._starts[number]
                yield from entries_of(box, held, held, move.itemsize, number, 0, 0, start)

    def by_exchange(self, shards, outs, device_id, home, group, programs):
        """Return a function that sends tiles packed, exactly those that the plan moves, and copies
        the own ones meanwhile."""
        wire, kept, place = self._wire(device_id, home), self._of(group), (home, stream(home))
        if place not in kept and not capturing(home):
            kept[place] = wire.buffers()
        packed, arrived = wire.buffers() if capturing(home) else kept[place]

        def run(shards, outs, group):
            wire.pack(shards, packed, programs)
            given = arrived, packed, wire.received, wire.sent
            work = dist.all_to_all_single(*given, group=group, async_op=True)
            yield
            wire.unpack(shards, arrived, outs, work.wait, programs)

        return run

    def in_place(self, shards, outs, device_id, home, group, programs):
        """Return a function that sends every tile from where it is to where it belongs."""
        wire, ranks = self._wire(device_id, home), dist.get_process_group_ranks(group)

        def run(shards, outs, group):
            asked = [
                dist.P2POp(does, part, ranks[rank], group, tag)
                for does, parts in (
                    (dist.irecv, wire.parts(outs, 1)),
                    (dist.isend, wire.parts(shards, 0)),
                )
                for rank, part, tag in parts
            ]
            works = dist.batch_isend_irecv(asked) if asked else []
            wire.keep(shards, outs, programs)
            yield
            for work in works:
                work.wait()

        return run


def device_of(tensor, group):
    """Return where a tensor is; of None, where the group communicates."""
    # get_backend does not tell of a group made without naming one: gloo and NCCL side by side.
    if tensor is None and "cuda:nccl" in dist.get_backend_config(group):
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu") if tensor is None else tensor.device


def _facts(asked, shards, outs):
    """Return all that is checked of the tensors of a call, None where they are to be checked."""
    found = (*map(facts, shards), *map(facts, outs))
    home = next((each for each in (*shards, *outs) if each is not None), None)
    if False in found or home is None or capturing(home.device):
        return None
    return asked, stream(home.device), found
