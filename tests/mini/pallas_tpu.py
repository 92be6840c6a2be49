"""Remote copies for one fixed reshard: 5x4 float32, rows over two devices to columns."""

import functools
import types

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

__all__ = ["pad", "reshard", "source_sharding", "target_sharding", "unpad"]

SHAPE = (5, 4)
DTYPE = "float32"
PLAN = "0"
SOURCE_MESH = '<["x"=2]>'
TARGET_MESH = '<["x"=2]>'
SOURCE = '[{"x"}, {}]'
TARGET = '[{}, {"x"}]'
LOCAL_SOURCE_SHAPE = (3, 4)
LOCAL_TARGET_SHAPE = (5, 2)
SOURCE_IDS = TARGET_IDS = range(2)
LOGICAL = pl.DeviceIdType.LOGICAL


def source_box(position):
    """Tensor ranges of the source shard."""
    return position * 3, jnp.minimum(position * 3 + 3, 5), 0, 4


def target_box(position):
    """Tensor ranges of the target shard."""
    return 0, 5, position * 2, position * 2 + 2


def source_shape(device):
    """The local shape of a device's source shard."""
    return (3, 4) if device == 0 else (2, 4)


def target_shape(device):
    """The local shape of a device's target shard."""
    return (5, 2)


def source_sharding(mesh):
    """Where the padded input lies."""
    return NamedSharding(mesh, P("x", None))


def target_sharding(mesh):
    """Where the padded result lies."""
    return NamedSharding(mesh, P(None, "x"))


def pad(x):
    """Every shard padded to the largest."""
    return jnp.pad(x, ((0, 1), (0, 0)))


def unpad(y):
    """The logical tensor: the target divides."""
    return y


def _kernel(x, y, send, receive):
    """Push the tile of every peer's columns; wait until all of one's own has come."""
    me = lax.axis_index("x")
    barrier = pltpu.get_barrier_semaphore()
    pl.semaphore_signal(barrier, 1, device_id=1 - me, device_id_type=LOGICAL)
    pl.semaphore_wait(barrier, 1)
    row, row_end, _, _ = source_box(me)
    rows = row_end - row
    for peer in range(2):
        _, _, column, _ = target_box(peer)
        pltpu.make_async_remote_copy(
            x.at[pl.ds(0, rows), pl.ds(column, 2)],
            y.at[pl.ds(row, rows), pl.ds(0, 2)],
            send,
            receive,
            device_id=peer,
            device_id_type=LOGICAL,
        ).start()
    sent = x.at[pl.ds(0, rows), pl.ds(0, 4)]
    pltpu.make_async_copy(sent, sent, send).wait()
    received = y.at[pl.ds(0, 5), pl.ds(0, 2)]
    pltpu.make_async_copy(received, received, receive).wait()


def reshard(x, mesh, *, target_mesh=None, interpret=False):
    """The padded global array on the target sharding."""

    @functools.partial(
        jax.shard_map, mesh=mesh, in_specs=P("x", None), out_specs=P(None, "x"), check_vma=False
    )
    def exchange(shard):
        return pl.pallas_call(
            _kernel,
            out_shape=jax.ShapeDtypeStruct(LOCAL_TARGET_SHAPE, shard.dtype),
            in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
            out_specs=pl.BlockSpec(memory_space=pl.ANY),
            scratch_shapes=[pltpu.SemaphoreType.DMA, pltpu.SemaphoreType.DMA],
            compiler_params=pltpu.CompilerParams(collective_id=0, has_side_effects=True),
            interpret=interpret,
        )(shard)

    return exchange(x)


_PROGRAM = types.SimpleNamespace(form="direct", kernel=_kernel, view=(0, 1), order=None)
_PROGRAM.carriers = (_PROGRAM,)
_PROGRAM.host = types.SimpleNamespace(
    source=types.SimpleNamespace(local=LOCAL_SOURCE_SHAPE),
    target=types.SimpleNamespace(local=LOCAL_TARGET_SHAPE),
)
_HOST = types.SimpleNamespace(exchange=None, program=_PROGRAM)
