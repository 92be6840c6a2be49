"""The self-check of modules of JAX arrays: what is sent is what is expected, and it arrives."""

import math

import jax
import jax.numpy as jnp
import numpy as np

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
    faults = [] if host.exchange is None else [host.exchange.fault()]
    for fault in (*faults, host.program.fault()):
        if fault:
            raise SystemExit(fault)
    return "" if host.exchange is None else host.program.proved


def _trace(host, mesh, target_mesh):
    x = jax.ShapeDtypeStruct(host.source.padded, host.dtype, sharding=host.source.on(mesh))
    jax.jit(lambda x: host.reshard(x, mesh, target_mesh=target_mesh, interpret=True)).trace(x)


def _move(host, mesh, target_mesh):
    """Move numbered elements. Exit if the result is wrong."""
    given, wanted = host.program.numbered()
    x = jax.device_put(host.pad(given), host.source.on(mesh))
    y = host.reshard(x, mesh, target_mesh=target_mesh, interpret=True)
    if not np.array_equal(host.program.read(np.asarray(host.unpad(y))), np.asarray(wanted)):
        raise SystemExit("wrong target shards")


def numbered(host):
    """Return a tensor of numbers, which few elements of one dtype share."""
    most = 2 if host.dtype == bool else 5
    tensor = jnp.arange(math.prod(host.shape)) % most
    return tensor.astype(host.dtype).reshape(host.shape)
