"""A direct reshard in two halves, between which a program may compute while tiles are in flight.

Two kernels share semaphores and the target shard. XLA moves neither of them in between, because the
first kernel creates them and only the second consumes them. The source shard is passed on too, so
that its memory is not reused while DMAs still read it.
"""

import warnings

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

from .jax_bits import bits_of
from .jax_callers import not_mapped
from .jax_host import OneOrder
from .jax_meshes import expect, mapped, typed
from .pallas_call import HBM

SEMAPHORES = (pl.BlockSpec(memory_space=pltpu.SEMAPHORE),) * 2


class Started:
    """A reshard that `reshard_start` has begun. `held`: the arrays that both kernels share,
    source shards first; if interpreted, only the result. `source`: the mesh of these kernels,
    None if interpreted; `target`: the mesh of the result."""

    def __init__(self, held, source, target):
        self.held, self.source, self.target = tuple(held), source, target

    def then(self, values):
        """Return the arrays `values`, in any container, such that computations on the returned
        arrays run after the transfers have started. Raises ValueError after `reshard_done`."""
        if not self.held:
            raise ValueError("then: got a reshard that is already done, expected one in flight")
        # Depend on the target shards, which the first kernel returns, or, if interpreted, on the
        # result.
        *before, place = self.held[:2]
        place, values = lax.optimization_barrier((place, values))
        self.held = *before, place, *self.held[2:]
        return values

    def __del__(self):
        if self.held:
            warnings.warn(
                "reshard_start: tiles are still in flight, call reshard_done", stacklevel=2
            )


class StartedReshard(OneOrder):
    """A reshard whose program has a kernel for each half: it can start and finish in separate
    calls."""

    def reshard_start(self, x, mesh, *, target_mesh=None, interpret=False, collective_id=None):
        """Begin to reshard, and return the handle for `reshard_done`; in `jax.jit` only.

            started = reshard_start(x, mesh)
            w = started.then(w)                 # computations on w come after the start,
            z = x @ w
            y = reshard_done(started, after=z)  # and z before the end

        Arguments are those of `reshard`. Both calls must be in one trace, such as one loop body,
        with `reshard_done` called once; several reshards may be in flight and finish in any order.
        The source shard is kept until then, and copied at the start if the program uses it again.
        If interpreted, this is `reshard`. Raises the errors of `reshard`, TypeError outside
        `jax.jit`, and NotImplementedError under `jax.vmap` and for a derivative.
        """
        not_mapped("reshard_start")
        expect(x, self.source.padded, self.dtype, "source array, as pad(x) makes it")
        if not isinstance(x, jax.core.Tracer):
            raise TypeError("reshard_start: got an array outside jax.jit, expected a traced one")
        source, target = self.meshes(mesh, target_mesh)
        given = self.source.on(source)
        x = _alone(x)
        if interpret:
            how = {"interpret": interpret, "collective_id": collective_id}
            y = self.reshard(x, mesh, target_mesh=target_mesh, **how)
            return Started((y,), None, target)
        collective_id = self.program.settings(source.devices.flat, interpret, collective_id)
        rows = P(source.axis_names)

        def first(shard):
            return self._begun(self._as_moved(shard), collective_id)

        begin = mapped(first, source, given.spec, (rows, rows, P(), P()))
        return Started(begin(typed(given, x)), source, target)

    def reshard_done(self, started, after=()):
        """Return the target array of a reshard begun by `reshard_start`, after the arrays `after`,
        in any container, are computed. Raises TypeError if `started` is not a handle of
        `reshard_start`, and ValueError if it is done already."""
        if not isinstance(started, Started):
            raise TypeError(
                f"reshard_done: got {type(started).__name__}, expected a handle of reshard_start"
            )
        if not started.held:
            raise ValueError(
                "reshard_done: got a reshard that is already done, expected one in flight"
            )
        started.then(after)
        held, started.held = started.held, ()
        if started.source is None:
            return held[0]
        rows, out_rows = P(started.source.axis_names), P(started.target.axis_names)
        y = mapped(self._ended, started.source, (rows, rows, P(), P()), rows)(*held)
        result = self.target.on(started.target)
        return typed(result, mapped(self._as_given, started.target, out_rows, result.spec)(y))

    def _begun(self, x, collective_id):
        """Start the transfers; return a source shard, the future target shard, and two
        semaphores."""
        semaphore, x = pltpu.SemaphoreType.DMA(()), lax.transpose(x, self.program.view)
        arrays = pltpu.HBM(x.shape, x.dtype), pltpu.HBM(self.program.target_shape, x.dtype)
        return pl.pallas_call(
            self.program.kernels[0],
            in_specs=[HBM],
            out_shape=(*arrays, semaphore, semaphore),
            out_specs=(HBM, HBM, *SEMAPHORES),
            scratch_shapes=[pltpu.SemaphoreType.REGULAR],
            input_output_aliases={0: 0},
            compiler_params=pltpu.CompilerParams(
                has_side_effects=True, collective_id=collective_id
            ),
        )(pltpu.with_memory_space_constraint(x, pltpu.HBM))

    def _ended(self, x, y, *semaphores):
        """Wait for the whole target shard and return it."""
        x, y = (pltpu.with_memory_space_constraint(each, pltpu.HBM) for each in (x, y))
        y = pl.pallas_call(
            self.program.kernels[1],
            in_specs=[HBM, HBM, *SEMAPHORES],
            out_shape=pltpu.HBM(y.shape, y.dtype),
            out_specs=HBM,
            input_output_aliases={1: 0},
            compiler_params=pltpu.CompilerParams(has_side_effects=True),
        )(x, y, *semaphores)
        return lax.transpose(y, self.program.inverse)

    def _as_moved(self, shard):
        """Return a shard in the dtype that kernels move."""
        if self.dtype == jnp.bool_:
            return shard.astype(jnp.int8)
        bits = self.program.bits == "always"
        return lax.bitcast_convert_type(shard, bits_of(self.dtype)) if bits else shard

    def _as_given(self, shard):
        """Return a moved shard in the dtype of the reshard."""
        if self.dtype == jnp.bool_:
            return shard.astype(jnp.bool_)
        bits = self.program.bits == "always"
        return lax.bitcast_convert_type(shard, self.dtype) if bits else shard


@jax.custom_jvp
def _underived(x):
    """Make an array refuse batching and derivatives."""
    return x


def _refused(*_):
    """Raise NotImplementedError for `jax.vmap` or a derivative."""
    raise NotImplementedError(
        "reshard_start supports neither jax.vmap nor derivatives: call reshard instead, or, for "
        "derivatives, pass stop_gradient(x)"
    )


_underived.defjvp(_refused)
_alone = jax.custom_batching.custom_vmap(_underived)
_alone.def_vmap(_refused)
