"""The self-check of modules of JAX arrays."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from .boxes import not_run

FEW = 2**18  # larger tensors are not moved


def self_check(host):
    """Prove, without data, that every device's box is its shard and, if boxes are sent, that they
    fill every target shard. Then move numbered elements if they are few, else trace the program.
    JAX's own sharding gives the expected elements. Return the facts checked; exit on a fault, or if
    nothing ran."""
    checked, elements = proved(host), math.prod(host.shape)
    mesh, target_mesh = meshes = meshes_here(host)
    how = host.program.interpreted
    if elements > FEW:
        traced = _trace(host, *meshes)
        not_run(f"{elements} elements are too many to move here; {checked}{traced}")
    for given, wanted in numbered(host):
        x = filled(host, given, mesh)
        move = functools.partial(host.reshard, x, mesh, target_mesh=target_mesh, interpret=how)
        judge(host, host.program.watched(move), wanted)
    return f"{checked}{elements} elements moved, every target shard right"


def meshes_here(host):
    """Return meshes of both sides on the available devices; exit if these are too few."""
    if len(jax.devices()) < len(host.ranks):
        raise SystemExit(f"got {len(jax.devices())} devices, expected {len(host.ranks)}")
    if host.dtype.itemsize == 8:
        jax.config.update("jax_enable_x64", True)
    devices = dict(zip(host.ranks, jax.devices(), strict=False))
    sides = host.source, host.target
    return [side.mesh_of([devices[device_id] for device_id in side.ids]) for side in sides]


def proved(host):
    """Return the facts proved without data; exit on a fault."""
    sides = host.paddings or (host.source, host.target)
    faults = [side.fault() for side in sides]
    faults += [] if host.exchange is None else [host.exchange.fault()]
    for fault in (*faults, host.program.fault()):
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


def filled(host, given, mesh):
    """Return the source array of a tensor with ones in its padding, which must not be read."""
    x = np.array(host.pad(given))
    if host.paddings:
        x[host.paddings[0].where()] = 1
    return jax.device_put(x, host.source.on(mesh))


def judge(host, y, wanted):
    """Exit if a target array differs from the tensor's, or has nonzero padding."""
    y = np.asarray(y)
    if host.paddings and y[host.paddings[1].where()].any():
        raise SystemExit("padding of target shards that is not zero")
    found = np.asarray(host.unpad(jnp.asarray(y)))
    found = host.program.terms.read(host, found) if host.program.terms else found
    if not np.array_equal(found, np.asarray(wanted)):
        raise SystemExit("wrong target shards")


def numbered(host):
    """Yield tensors of the digits of element numbers, in a base that the dtype represents: as the
    argument of `pad`, and as expected from `unpad`."""
    few = {"bool": 2, "int8": 100, "uint8": 100}.get(host.dtype.name, 4)
    base = {1: few, 2: 100}.get(host.dtype.itemsize, FEW)
    number = np.arange(math.prod(host.shape), dtype=np.int32).reshape(host.shape)
    terms, more = host.program.terms, True
    while more:
        tensor, number = number % base, number // base
        given, wanted = terms.numbered(host, tensor) if terms else (tensor, tensor)
        yield given.astype(host.dtype), wanted.astype(host.dtype)
        more = bool(number.any())
