"""The self-check of modules of JAX arrays."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from .boxes import not_run

FEW = 2**18  # more elements are not moved


def self_check(host):
    """Prove, without data, that every device's box is its shard, and, where boxes are sent, that
    they fill every target shard; then move numbered elements, if they are few, else trace the
    program. JAX's own sharding of the tensor says which elements are right. Return what is right;
    exit with what is wrong, or if nothing ran."""
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
    """Return meshes of both sides on the devices that there are; exit if these are too few."""
    if len(jax.devices()) < len(host.ranks):
        raise SystemExit(f"got {len(jax.devices())} devices, expected {len(host.ranks)}")
    if host.dtype.itemsize == 8:
        jax.config.update("jax_enable_x64", True)
    devices = dict(zip(host.ranks, jax.devices(), strict=False))
    sides = host.source, host.target
    return [side.mesh_of([devices[device_id] for device_id in side.ids]) for side in sides]


def proved(host):
    """Return what is right without data; exit with what is wrong."""
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
    """Return the source array of a tensor, ones in its padding, which must not be read."""
    x = np.array(host.pad(given))
    if host.paddings:
        x[host.paddings[0].where()] = 1
    return jax.device_put(x, host.source.on(mesh))


def judge(host, y, wanted):
    """Exit where a target array is not that of a tensor, or has padding that is not zero."""
    y = np.asarray(y)
    if host.paddings and y[host.paddings[1].where()].any():
        raise SystemExit("padding of target shards that is not zero")
    found = np.asarray(host.unpad(jnp.asarray(y)))
    found = host.program.terms.read(host, found) if host.program.terms else found
    if not np.array_equal(found, np.asarray(wanted)):
        raise SystemExit("wrong target shards")


def numbered(host):
    """Yield tensors of the digits of the elements' numbers, in a base that the dtype has, as `pad`
    takes them, and as what `unpad` gives is to be read."""
    few = {"bool": 2, "int8": 100, "uint8": 100}.get(host.dtype.name, 4)
    base = {1: few, 2: 100}.get(host.dtype.itemsize, FEW)
    number = np.arange(math.prod(host.shape), dtype=np.int32).reshape(host.shape)
    terms, more = host.program.terms, True
    while more:
        tensor, number = number % base, number // base
        given, wanted = terms.numbered(host, tensor) if terms else (tensor, tensor)
        yield given.astype(host.dtype), wanted.astype(host.dtype)
        more = bool(number.any())
