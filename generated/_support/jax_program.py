"""The self-check of modules of JAX arrays, and what it asks of the program of a device."""

import contextlib
import functools
import io
import math
import re
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .boxes import Exchange, extents, not_run


class Terms(NamedTuple):
    """Dimension 0 of source or target stands for unreduced axes: sums to be made. `operator`: what
    makes one value of the terms of the source; `target_operator`: of those of the target;
    `transposed`: whether cotangents are moved, of which every term is the tensor."""

    operator: str = "sum"
    target_operator: str = "sum"
    transposed: bool = False

    def of(self, tensor, count):
        """Return so many terms of a tensor of which the operator alone makes the tensor."""
        if self.transposed:
            return np.stack([tensor] * count)
        # One of an element's terms has the element, the others less, more, or 1 and -1 in turn.
        turn = (np.arange(count).reshape(-1, *[1] * tensor.ndim) - tensor) % count
        others = {"min": tensor + 1, "max": np.maximum(tensor - 1, 0)}
        if self.operator in others:
            return np.where(turn == 0, tensor, others[self.operator])
        own = tensor - (count - 1) % 2
        return np.where(turn == 0, own, np.where(turn % 2, 1, -1))


class Program:
    """Makes the target shard of a device of its source shard, by `exchange`; `as_bits` says whether
    elements are given to it as integers of their width. `moves`: everything that moves, None where
    that is said by collectives alone; `order`: a table of ranks; `collective_id`: that of its
    kernels; each None where there is none. `terms`: what dimension 0 is, where it is one."""

    moves: Exchange | None = None
    interpreted: object = True  # as what kernels are interpreted to check them
    order: tuple[int, ...] | None = None
    collective_id: int | None = None
    terms = Terms()
    short: tuple[int, ...] = ()  # the dimensions along which it leaves padding that is not zero

    def attach(self, host):
        """Get to know what is moved."""
        self.host = host
        self.floating = bool(jnp.issubdtype(host.dtype, jnp.floating))

    def zeroed(self, y, extent):
        """Return a target shard with zeros in its padding; `extent`: its exact shape. Only ends are
        looked at that some shard lacks, so that it takes no pass over the others' memory; but of
        what collectives alone leave, which XLA copies in any case, everything, where there is any
        padding."""

        def padded(y):
            for axis in self.short:
                start = 0 if self.moves is None else self._least[axis]
                end = lax.slice_in_dim(y, start, None, axis=axis)
                along = start + lax.broadcasted_iota(jnp.int32, end.shape, axis)
                end = jnp.where(along < extent[axis], end, jnp.zeros((), y.dtype))
                y = lax.dynamic_update_slice_in_dim(y, end, start, axis)
            return y

        if self.moves is None:
            return lax.cond((extent < np.array(y.shape)).any(), padded, lambda y: y, y)
        return padded(y)

    @functools.cached_property
    def _least(self):
        """The extent of the shortest target shard along each dimension."""
        target = self.host.target
        shapes = (extents(target.box(position)) for position in range(len(target.ids)))
        return tuple(map(min, zip(*shapes, strict=True)))

    def fault(self):
        """Return what is wrong with how shards are moved, found without data; "" if nothing is."""
        return ""

    def numbered(self, tensor):
        """Return a tensor of small numbers as `pad` takes it, and as `read` gives it."""
        source, target, dtype = self.host.source, self.host.target, self.host.dtype
        given = self.terms.of(tensor, source.padded[0]) if source.terms else tensor
        made = target.terms and self.terms.transposed
        tensor = np.stack([tensor] * target.padded[0]) if made else tensor
        return given.astype(dtype), tensor.astype(dtype)

    def read(self, result):
        """Return the tensor that an unpadded result stands for."""
        if not self.host.target.terms or self.terms.transposed:
            return result
        return getattr(np.asarray(result, np.float32), self.terms.target_operator)(axis=0)


# More elements than these are not moved.
FEW = 2**18


def self_check(host):
    """Prove, without data, that what all senders send is what all receivers expect and that it
    fills every target shard; then move numbered elements, if they are few, else trace the program.
    Return what is right; exit with what is wrong, or if nothing ran."""
    checked = proved(host)
    meshes = meshes_here(host)
    elements = math.prod(host.shape)
    if elements > FEW:
        traced = _trace(host, *meshes)
        not_run(f"{elements} elements are too many to move here; {checked}{traced}")
    for given, wanted in map(host.program.numbered, digits(host)):
        _move(host, given, wanted, *meshes)
    return f"{checked}{elements} elements moved, every target shard right"


def meshes_here(host):
    """Return meshes of both sides on the devices that there are; exit if these are too few."""
    if len(jax.devices()) < len(host.ranks):
        raise SystemExit(f"got {len(jax.devices())} devices, expected {len(host.ranks)}")
    if host.dtype.itemsize == 8:
        jax.config.update("jax_enable_x64", True)
    devices = dict(zip(host.ranks, jax.devices(), strict=False))
    sides = host.source, host.target
    return [side.mesh_of([devices[device_id] for device_id in side.ids]) for side in sides]


def proved(host):
    """Return what is right about what moves; exit with what is wrong."""
    sides = [side.fault(host.shape) for side in (host.source, host.target)]
    faults = [] if host.exchange is None else [host.exchange.fault()]
    for fault in (*sides, *faults, host.program.fault()):
        if fault:
            raise SystemExit(fault)
    if host.exchange is None:
        return "shards tile the tensor; "
    return f"shards tile the tensor, what is sent is what is expected{host.exchange.proved()}; "


def _trace(host, mesh, target_mesh):
    if tuple(host.source.ids) != tuple(host.target.ids):
        return "the program is not traced"
    x = jax.ShapeDtypeStruct(host.source.padded, host.dtype, sharding=host.source.on(mesh))
    jax.jit(lambda x: host.reshard(x, mesh, target_mesh=target_mesh, interpret=True)).trace(x)
    return "the program is traced"


def _move(host, given, wanted, mesh, target_mesh):
    """Move a tensor of small numbers. Exit if anything is wrong."""
    x, interpret = filled(host, given, mesh), host.program.interpreted
    y = watched(lambda: host.reshard(x, mesh, target_mesh=target_mesh, interpret=interpret))
    judge(host, y, wanted)


def filled(host, given, mesh):
    """Return the source array of a tensor, ones in its padding, which must not be read."""
    x = np.array(host.pad(given))
    x[_is_padding(host.source_padding)] = 1
    return jax.device_put(x, host.source.on(mesh))


def watched(move):
    """Return what a function returns when it is over; exit with what the interpreter notices."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        found = jax.block_until_ready(move())
    # Of races and of semaphores that are not zero in the end the interpreter only tells.
    noticed = re.search(r".*(RACE DETECTED|non-zero count).*", printed.getvalue())
    if noticed:
        raise SystemExit(noticed[0])
    return found


def judge(host, y, wanted):
    """Exit where a target array is not that of a tensor, or has padding that is not zero."""
    y = np.asarray(y)
    if y[_is_padding(host.target_padding)].any():
        raise SystemExit("padding of target shards that is not zero")
    found = host.program.read(np.asarray(host.unpad(y)))
    if not np.array_equal(found, np.asarray(wanted)):
        raise SystemExit("wrong target shards")


def _is_padding(padding):
    """Return where an array is padding."""
    return np.asarray(padding.add(jnp.ones(padding.whole, jnp.int8))) == 0


def digits(host):
    """Yield tensors of the digits of the elements' numbers, in a base that the dtype has, and the
    next number."""
    few = {"bool": 2, "int8": 100, "uint8": 100}.get(host.dtype.name, 4)
    base = {1: few, 2: 100}.get(host.dtype.itemsize, FEW)
    number = np.arange(math.prod(host.shape), dtype=np.int32).reshape(host.shape)
    yield number % base
    while (number := number // base).any():
        yield number % base
