"""The self-check of modules of JAX arrays, and what it asks of the program of a device."""

import contextlib
import io
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .boxes import Exchange


class Program:
    """Makes the target shard of a device of its source shard. `moves`: everything that moves
    (`boxes.Exchange`), None where that is said by collectives alone; `order`: a table of ranks;
    `collective_id`: that of its kernels; each None where there is none."""

    moves: Exchange | None = None
    interpreted: object = True  # as what kernels are interpreted to check them
    order: tuple[int, ...] | None = None
    collective_id: int | None = None
    short: tuple[int, ...] = ()  # the dimensions along which it leaves padding that is not zero

    def attach(self, host):
        """Get to know what is moved."""
        self.host = host
        self.floating = bool(jnp.issubdtype(host.dtype, jnp.floating))

    def as_bits(self, interpret):
        """Return whether elements are given as integers of their width."""
        del interpret
        return self.floating

    def exchange(self, shard, order, interpret, collective_id):
        """Return the target shard, its padding zero."""
        raise NotImplementedError

    def zeroed(self, y, extent):
        """Return a target shard with zeros in its padding; `extent`: its exact shape."""
        for axis in self.short:
            along = lax.broadcasted_iota(jnp.int32, y.shape, axis)
            y = jnp.where(along < extent[axis], y, jnp.zeros((), y.dtype))
        return y

    def check_routes(self, devices):
        """Raise ValueError for devices, by rank, among which it cannot send."""

    def fault(self):
        """Return what is wrong with how shards are moved, found without data; "" if nothing is."""
        return ""

    def numbered(self, tensor):
        """Return a tensor of small numbers as `pad` takes it, and as the result has it."""
        tensor = tensor.astype(self.host.dtype)
        return tensor, tensor

    def read(self, result):
        """Return the tensor that an unpadded result stands for."""
        return result


# More elements than these are not moved.
FEW = 2**18


def self_check(host):
    """Prove, without data, that what all senders send is what all receivers expect and that it
    fills every target shard; then move numbered elements, if they are few, else trace the program.
    Return what is right; exit with what is wrong."""
    proved = _proved(host)
    if len(jax.devices()) < len(host.ranks):
        raise SystemExit(f"got {len(jax.devices())} devices, expected {len(host.ranks)}")
    if host.dtype.itemsize == 8:
        jax.config.update("jax_enable_x64", True)
    devices = dict(zip(host.ranks, jax.devices(), strict=False))
    meshes = [
        side.mesh_of([devices[device_id] for device_id in side.ids])
        for side in (host.source, host.target)
    ]
    elements = math.prod(host.shape)
    if elements > FEW:
        traced = ""
        if tuple(host.source.ids) == tuple(host.target.ids):
            _trace(host, *meshes)
            traced = "the program is traced, "
        return f"{proved}{traced}none of {elements} elements moved"
    _move(host, *meshes)
    return f"{proved}{elements} elements moved, every target shard right"


def _proved(host):
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
    x = jax.ShapeDtypeStruct(host.source.padded, host.dtype, sharding=host.source.on(mesh))
    jax.jit(lambda x: host.reshard(x, mesh, target_mesh=target_mesh, interpret=True)).trace(x)


def _move(host, mesh, target_mesh):
    """Move numbered elements, digit by digit of their numbers. Exit if anything is wrong."""
    for given, wanted in map(host.program.numbered, digits(host)):
        x = jax.device_put(_poisoned(host, given), host.source.on(mesh))
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            y = host.reshard(x, mesh, target_mesh=target_mesh, interpret=host.program.interpreted)
            y = np.asarray(y)
        # Of races and of semaphores that are not zero in the end the interpreter only tells.
        noticed = re.search(r".*(RACE DETECTED|non-zero count).*", printed.getvalue())
        if noticed:
            raise SystemExit(noticed[0])
        if y[_padding(host.target_padding, host.target.whole(host.shape))].any():
            raise SystemExit("padding of target shards that is not zero")
        found = host.program.read(np.asarray(host.unpad(y)))
        if not np.array_equal(found, np.asarray(wanted)):
            raise SystemExit("wrong target shards")


def _poisoned(host, given):
    """Return the source array, in its padding what must not be read."""
    x = np.array(host.pad(given))
    x[_padding(host.source_padding, host.source.whole(host.shape))] = 1
    return x


def _padding(padding, shape):
    """Return where an array is padding."""
    return np.asarray(padding.add(jnp.ones(shape, jnp.int8))) == 0


def digits(host):
    """Yield tensors of the digits of the elements' numbers, in a base that the dtype has."""
    base, whole = _base(host.dtype), math.prod(host.shape)
    number = np.arange(whole, dtype=np.int32).reshape(host.shape)
    while True:
        yield number % base
        number, whole = number // base, -(-whole // base)
        if whole <= 1:
            return


def _base(dtype):
    """Return a base whose digits, and the next number, a dtype has."""
    if dtype.name == "bool":
        return 2
    if dtype.itemsize == 1:
        return 100 if dtype.name in ("int8", "uint8") else 4
    return 100 if dtype.itemsize == 2 else FEW
