"""Reshards of many arrays in one program: one exchange for all arrays of one element width.

Arrays with equal reshards form a kind and are stacked, so the size of a program grows with the
number of kinds. A device packs all elements for one receiver into one line. In a round, every
device sends and receives at most one line, and all lines have parts of the same shapes.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from .groups import moves_of, order_of
from .jax_bits import bits_of
from .jax_callers import not_mapped
from .jax_host import FEW, proved
from .jax_meshes import apart, expect, mapped, typed
from .jax_numbered import filled, judge, numbered
from .jax_refused import refuse_derivative
from .not_run import not_run
from .xla_rounds import Round, boxes_of


class Line(NamedTuple):
    """The lines of all devices in a round. `parts`: for each part of a line, the index of its
    kind and its boxes on all devices."""

    parts: list[tuple[int, Round]]

    @property
    def pairs(self):
        """Return the (sender, receiver) pairs of ranks; none if all devices keep their data."""
        _, first = self.parts[0]
        return first.pairs if first.sends else []

    def packed(self, shards, me):
        """Return a device's line, packed from its source shards by kind."""
        windows = [each.window_of(shards[kind], each.reads, me) for kind, each in self.parts]
        return jnp.concatenate([window.reshape(-1) for window in windows])

    def unpacked(self, line, results, me):
        """Write a line's contents into target shards by kind."""
        begin = 0
        for kind, part in self.parts:
            shape = (len(results[kind]), *part.window)
            end = begin + math.prod(shape)
            results[kind] = part.put(results[kind], line[begin:end].reshape(shape), me)
            begin = end


def lines_of(moves, ranks):
    """Return a `Line` for each round; together they carry all transfers. `moves`: the exchanges
    by kind index; `ranks`: the number of ranks."""
    by_pair: dict[tuple[int, int], list] = {}
    for kind, each in moves.items():
        for box in boxes_of(each):
            by_pair.setdefault((box.sender, box.receiver), []).append((kind, box))
    rounds: list[tuple] = []
    for ends in sorted(by_pair, key=lambda ends: ((ends[1] - ends[0]) % ranks, ends)):
        sender, receiver = ends
        shapes = sender == receiver, [(kind, box.shape) for kind, box in by_pair[ends]]
        for alike, sent, taken in rounds:
            if alike == shapes and sender not in sent and receiver not in taken:
                break
        else:
            alike, sent, taken = shapes, {}, set()
            rounds.append((alike, sent, taken))
        sent[sender] = by_pair[ends]
        taken.add(receiver)
    return [
        Line([(parts[0][0], Round.of([box for _, box in parts], ranks)) for parts in columns])
        for columns in (list(zip(*sent.values(), strict=True)) for _, sent, _ in rounds)
    ]


class Group:
    """Arrays on the same devices that move together. `kinds`: for each kind, the host of one of
    its bundles; `kind_of`: the kind index of each name; `kernel`: the function that sends the
    lines, with `collective_id` as its first id; if None, XLA sends them."""

    def __init__(self, names, kinds, kind_of, kernel=None, collective_id=None):
        self.kernel, self.collective_id = kernel, collective_id
        self.names, self.kinds, self.kind_of = names, kinds, kind_of
        self.hosts = [kinds[kind] for kind in kind_of]
        self._numbers = [
            [n for n, k in enumerate(kind_of) if k == kind] for kind in range(len(kinds))
        ]
        self.ranks = kinds[0].ranks
        self.one_order = tuple(kinds[0].source.ids) == tuple(kinds[0].target.ids)
        self._floats = [
            n for n, host in enumerate(self.hosts) if jnp.issubdtype(host.dtype, jnp.inexact)
        ]

    @functools.cached_property
    def lines(self):
        """Return the lines by element size in bytes."""
        moves: dict[int, dict] = {}
        for number, kind in enumerate(self.kinds):
            moves.setdefault(kind.dtype.itemsize, {})[number] = moves_of(kind)
        return {width: lines_of(each, len(self.ranks)) for width, each in moves.items()}

    def wire_bytes(self):
        """Return a list of the bytes that each rank receives from other ranks."""
        found = [0] * len(self.ranks)
        for width, lines in self.lines.items():
            for line in lines:
                parts = ((len(self._numbers[kind]), each.window) for kind, each in line.parts)
                size = width * sum(count * math.prod(window) for count, window in parts)
                for _, receiver in line.pairs:
                    found[receiver] += size
        return found

    def reshard(self, arrays, mesh, *, target_mesh=None, interpret=False, collective_id=None):
        """Return the target arrays of source arrays, all padded, in a container of the same form.

        `arrays`: a list in the order of NAMES, or a pytree whose keys, joined with underscores, are
        the names: `{"layer0": {"wq": x}}` for `layer0_wq`. Each array comes from its own `pad` and
        is sharded as in `source_sharding(mesh)`; results as in `target_sharding(target_mesh)`.
        Usable under `jax.jit` if both meshes list the same devices in one order. If the bundles
        were emitted with gradients, `reshard` is differentiable in reverse mode: cotangents move as
        a group too. Peak memory is three times that of the shards. `interpret` and `collective_id`
        are as for one array, except that `collective_id` is the first of eight ids, half of them
        for the derivative, and must be a multiple of eight.

        Raises ValueError for a wrong array, naming it, and for a wrong mesh; TypeError for an
        argument of the wrong type; NotImplementedError for a missing derivative.
        """
        not_mapped("reshard")
        given, give_back = self._ordered(arrays, "arrays")
        for name, host, x in zip(self.names, self.hosts, given, strict=True):
            expect(x, host.source.padded, host.dtype, f"{name}: source array, as pad makes it")
        called = interpret, self.collective_id if collective_id is None else collective_id
        source, target = self._meshes(mesh, target_mesh)
        return give_back(self.moved(given, source, target, called))

    def _meshes(self, mesh, target_mesh):
        """Return the meshes of both sides. Kinds may name different axes; the meshes must fit one
        kind. Raises the errors of `reshard`."""
        faults = []
        for kind in self.kinds:
            try:
                return kind.meshes(mesh, target_mesh)
            except ValueError as fault:
                faults.append(fault)
        # A kind with other axes says less than a kind whose axes fit.
        raise min(faults, key=lambda fault: "got axes" in str(fault))

    def _ordered(self, tree, what):
        """Return the leaves of a pytree in the order of names, and a function that takes other
        leaves in that order and returns a pytree of the same form."""
        found, form = jax.tree_util.tree_flatten_with_path(tree)
        places = order_of([tuple(map(_key, path)) for path, _ in found], self.names, what)

        def give_back(leaves):
            by_place = dict(zip(places, leaves, strict=True))
            return form.unflatten([by_place[place] for place in range(len(found))])

        return [found[place][1] for place in places], give_back

    def moved(self, arrays, mesh, target_mesh, called):
        """Return the target arrays of source arrays, both in the order of names; differentiable in
        reverse mode. `called`: `interpret` and the first collective id."""

        def forth(arrays):
            for number in self._floats:
                operation = self.hosts[number].operation
                operation.refuse() if operation else refuse_derivative()
            return self._move(arrays, mesh, target_mesh, called), None

        def back(_, cotangents):
            found = [np.zeros(host.source.padded, jax.dtypes.float0) for host in self.hosts]
            given = [cotangents[number] for number in self._floats]
            pulled = self._reverse.moved(given, target_mesh, mesh, _next(called))
            for number, cotangent in zip(self._floats, pulled, strict=True):
                found[number] = cotangent
            return (found,)

        move = jax.custom_vjp(lambda arrays: self._move(arrays, mesh, target_mesh, called))
        move.defvjp(forth, back)
        return move(list(arrays))

    @functools.cached_property
    def _reverse(self):
        """Return the group that moves cotangents."""
        used = sorted({self.kind_of[number] for number in self._floats})
        kind_of = [used.index(self.kind_of[number]) for number in self._floats]
        names = [self.names[number] for number in self._floats]
        kinds = [self.kinds[kind].operation.reverse for kind in used]
        return type(self)(names, kinds, kind_of, self.kernel)

    def _move(self, arrays, mesh, target_mesh, called):
        if not self.one_order:
            return self._eager(arrays, mesh, target_mesh, called)
        if any(isinstance(x, jax.core.Tracer) for x in arrays):
            pairs = zip(self.hosts, arrays, strict=True)
            arrays = [typed(host.source.on(mesh), x) for host, x in pairs]
            return self.within(arrays, mesh, called, target_mesh)
        with apart(None):
            return _compiled(self, "within", mesh, called, target_mesh)(self._placed(arrays, mesh))

    def _called(self, arrays, mesh, target_mesh, interpret=False):
        return self.moved(arrays, mesh, target_mesh, (interpret, self.collective_id))

    def _placed(self, arrays, mesh):
        return jax.device_put(arrays, [host.source.on(mesh) for host in self.hosts])

    def _eager(self, arrays, mesh, target_mesh, called):
        """Return the target arrays of concrete arrays, on meshes with different device orders."""
        if any(isinstance(x, jax.core.Tracer) for x in arrays):
            self.kinds[0].lowered(None)  # always raises
        union = _in_a_row(self.kinds[0].devices_by_rank(mesh, target_mesh))
        with apart(None):
            stacks = _compiled(self, "stacked", mesh)(self._placed(arrays, mesh))
            stacks = [_relabelled(stack, union) for stack in stacks]
            stacks = _compiled(self, "exchange", union, called)(stacks)
            stacks = [_relabelled(stack, _in_a_row(target_mesh.devices)) for stack in stacks]
            return _compiled(self, "parted", target_mesh)(stacks)

    def within(self, arrays, mesh, called, target_mesh):
        """Return the target arrays as part of a traced program."""
        stacks = self.exchange(self.stacked(arrays, mesh), _in_a_row(mesh.devices), called)
        return self.parted(stacks, target_mesh)

    def stacked(self, arrays, mesh):
        """Return source shards by kind, [devices, arrays, ...], as integers."""
        found = []
        for kind, numbers in zip(self.kinds, self._numbers, strict=True):
            source, local = kind.source.mesh(mesh), kind.source.local or (1,)

            def stack(shards, local=local):
                return jnp.stack([_bits(shard).reshape(local) for shard in shards])[None]

            over = mapped(stack, source, (kind.source.spec,), P(source.axis_names))
            found.append(over([arrays[number] for number in numbers]))
        return found

    def exchange(self, stacks, union, called):
        """Return target shards by kind, [devices, arrays, ...], from source shards."""

        def one(stacks):
            me, shards = lax.axis_index("device"), [stack[0] for stack in stacks]
            results = [
                jnp.zeros((len(shard), *(kind.target.local or (1,))), shard.dtype)
                for shard, kind in zip(shards, self.kinds, strict=True)
            ]
            for number, lines in enumerate(self.lines.values()):
                packed = [line.packed(shards, me) for line in lines]
                arrived = self.sent(lines, packed, number, called)
                for line, each in zip(lines, arrived, strict=True):
                    line.unpacked(each, results, me)
            return [result[None] for result in results]

        return mapped(one, union, (P("device"),), P("device"))(stacks)

    def sent(self, lines, packed, number, called):
        """Return the lines that a device receives while sending the packed lines; `number`: the
        index of their element width."""
        del number, called
        return [
            lax.ppermute(each, "device", line.pairs) if line.pairs else each
            for line, each in zip(lines, packed, strict=True)
        ]

    def parted(self, stacks, target_mesh):
        """Return the list of target arrays, in the order of names, assembled from the target
        shards of each kind."""
        results = [None] * len(self.names)
        for kind, numbers, stack in zip(self.kinds, self._numbers, stacks, strict=True):
            target = kind.target.mesh(target_mesh)

            def part(rows, kind=kind):
                return [_of_bits(row, kind.dtype).reshape(kind.target.local) for row in rows[0]]

            specs = [kind.target.spec] * len(numbers)
            arrays = mapped(part, target, (P(target.axis_names),), specs)(stack)
            for number, y in zip(numbers, arrays, strict=True):
                results[number] = y
        return results

    def compiled_for(self, devices):
        """Return the argument types of a program, and the program as a function to jit: the
        whole reshard or, if one jitted program cannot use both meshes, only the exchange of
        stacks. `devices`: in the order of ranks."""
        by_id = dict(zip(self.ranks, devices, strict=True))
        first, called = self.kinds[0], (False, self.collective_id)
        sides = first.source, first.target
        mesh, target_mesh = (side.mesh_of([by_id[each] for each in side.ids]) for side in sides)
        if self.one_order:
            given = [
                jax.ShapeDtypeStruct(host.source.padded, host.dtype, sharding=host.source.on(mesh))
                for host in self.hosts
            ]
            return given, lambda arrays: self.within(arrays, mesh, called, target_mesh)
        union = _in_a_row(devices)
        rows, given = NamedSharding(union, P("device")), []
        for kind, numbers in zip(self.kinds, self._numbers, strict=True):
            shape = (len(devices), len(numbers), *(kind.source.local or (1,)))
            bits = jnp.int8 if kind.dtype == jnp.bool_ else bits_of(kind.dtype)
            given.append(jax.ShapeDtypeStruct(shape, bits, sharding=rows))
        return given, lambda stacks: self.exchange(stacks, union, called)

    def pad(self, tensors):
        """Return the padded arrays of logical tensors, in a container of the same form."""
        given, give_back = self._ordered(tensors, "tensors")
        return give_back([host.pad(x) for host, x in zip(self.hosts, given, strict=True)])

    def unpad(self, arrays):
        """Return the logical tensors of padded results, in a container of the same form."""
        given, give_back = self._ordered(arrays, "results")
        return give_back([host.unpad(y) for host, y in zip(self.hosts, given, strict=True)])

    def source_sharding(self, mesh):
        """Return the sharding of each argument of `reshard`, by name."""
        return {n: host.source.on(mesh) for n, host in zip(self.names, self.hosts, strict=True)}

    def target_sharding(self, mesh):
        """Return the sharding of each result of `reshard`, by name."""
        return {n: host.target.on(mesh) for n, host in zip(self.names, self.hosts, strict=True)}

    def self_check(self):
        """Move numbered elements of every tensor, and return the facts checked. Exit on a fault,
        or if there are too many elements to move."""
        *_, checked = map(proved, self.kinds)
        if any(kind.dtype.itemsize == 8 for kind in self.kinds):
            jax.config.update("jax_enable_x64", True)
        *_, (mesh, target_mesh) = [kind.meshes_here() for kind in self.kinds]
        elements = sum(math.prod(host.shape) for host in self.hosts)
        if elements > FEW:
            not_run(f"{elements} elements are too many to move here; {checked.rstrip('; ')}")
        planes = [[*numbered(host)] for host in self.hosts]
        for plane in range(max(map(len, planes))):
            moved = [each[plane % len(each)] for each in planes]
            pairs = zip(self.hosts, moved, strict=True)
            arrays = [filled(host, given, mesh) for host, (given, _) in pairs]
            move = functools.partial(self._called, arrays, mesh, target_mesh)
            found = self.kinds[0].program.watched(move)
            for host, y, (_, wanted) in zip(self.hosts, found, moved, strict=True):
                judge(host, y, wanted)
        return f"{checked}{elements} elements moved, every target shard right"


def _next(called):
    """Return `called` with the collective id of the derivative."""
    interpret, collective_id = called
    return interpret, None if collective_id is None else collective_id ^ 4


def _key(entry):
    kinds = jax.tree_util
    match entry:
        case kinds.SequenceKey(idx=key) | kinds.DictKey(key=key) | kinds.GetAttrKey(name=key):
            return key
    return entry.key


def _bits(x):
    if x.dtype == jnp.bool_:
        return x.astype(jnp.int8)
    return lax.bitcast_convert_type(x, bits_of(x.dtype))


def _of_bits(x, dtype):
    return x.astype(dtype) if dtype == jnp.bool_ else lax.bitcast_convert_type(x, dtype)


def _in_a_row(devices):
    return Mesh(np.array(devices).reshape(-1), ("device",))


@functools.cache
def _compiled(group, stage, *static):
    """Return the method `stage` of a group, jitted, with `static` as its remaining arguments. The
    last of these is the target mesh if the method returns target arrays."""

    def run(given):
        return getattr(group, stage)(given, *static)

    if stage not in ("within", "parted"):
        return jax.jit(run)
    # Without `out_shardings`, XLA chooses the shardings of a program's results.
    return jax.jit(run, out_shardings=[host.target.on(static[-1]) for host in group.hosts])


def _relabelled(stack, row):
    """Return a stack of shards on the mesh `row`; each shard stays on its device."""
    held = {shard.device: shard.data for shard in stack.addressable_shards}
    shape = stack.shape[1:]
    for device in {*row.local_devices} - {*held}:  # outside the source mesh: never read
        held[device] = jnp.zeros((1, *shape), stack.dtype, device=device)
    given = [held[device] for device in row.local_devices]
    sharding = NamedSharding(row, P("device"))
    make = jax.make_array_from_single_device_arrays
    return make((row.size, *shape), sharding, given, dtype=stack.dtype)
