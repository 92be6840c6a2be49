"""Check that JAX's TPU interpreter still reveals faults planted in a kernel.

`observed` relies on private names and printed lines of JAX, which may change with its version, so a
verifying process first checks that faults are still found. Imported only by workers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from shardwright.codegen.backends.pallas_tpu.verify import poison
from shardwright.codegen.backends.pallas_tpu.verify.interpreter import observed
from shardwright.codegen.checks.compare import MismatchError

DEVICES = 2
ROW = (8, 128)


def missed() -> Iterator[str]:
    """Yield a description of every planted fault that is missed, and of every other sign that
    observation does not work."""
    for mode, fresh in zip(poison.MODES, (np.isnan, np.logical_not), strict=True):
        poison.choose(mode)
        result, fault = _ran()
        if fault:
            yield f"a kernel without a fault is said to have one: {fault}"
        elif not (fresh(result[:, DEVICES]).all() and (result[:, :DEVICES] == 1).all()):
            yield f"fresh memory is not filled with {mode.memory}"
    if not re.match(r"race: write of .* against write of ", _ran(race=True)[1]):
        yield "a planted race is not found"
    if not re.match(r"Semaphore \d+ has non-zero count ", _ran(signals=1)[1]):
        yield "a semaphore that is left non-zero is not found"


def _ran(race: bool = False, signals: int = 0) -> tuple[Any, str]:
    """Run the kernel. Return every device's final data, [device, slot, *ROW], and the fault found,
    or "". The data is None if there is a fault. `race`: plant a race; `signals`: the number of
    signals to leave on a semaphore."""
    mesh = Mesh(np.array(jax.devices()[:DEVICES]), ("device",))
    one = partial(_one, race=race, signals=signals)
    mapped = jax.shard_map(
        one, mesh=mesh, in_specs=P("device"), out_specs=P("device"), check_vma=False
    )
    x = jax.device_put(
        jnp.ones((DEVICES * ROW[0], ROW[1])), jax.sharding.NamedSharding(mesh, P("device"))
    )
    function: Callable[..., Any] = jax.jit(mapped)
    try:
        with observed():
            result = np.asarray(jax.block_until_ready(function(x)))
    except MismatchError as error:
        return None, str(error)
    return result.reshape(DEVICES, DEVICES + 1, *ROW), ""


def _one(shard: Any, race: bool, signals: int) -> Any:
    kernel: Any = pl.pallas_call(
        partial(_push, race=race, signals=signals),
        out_shape=jax.ShapeDtypeStruct((DEVICES + 1, *ROW), shard.dtype),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[*[pltpu.SemaphoreType.DMA] * 2, pltpu.SemaphoreType.REGULAR],
        compiler_params=pltpu.CompilerParams(collective_id=0, has_side_effects=True),
        interpret=poison.interpret_params(),
    )
    return kernel(shard).reshape(-1, ROW[1])


def _push(x: Any, y: Any, sent: Any, received: Any, more: Any, race: bool, signals: int) -> None:
    """Push each device's row to all devices, into the slot with its number, or with `race` into
    slot 0. The last slot stays uninitialised."""
    me = lax.axis_index("device")
    barrier = pltpu.get_barrier_semaphore()
    for device in range(DEVICES):
        pl.semaphore_signal(barrier, 1, device_id=device, device_id_type=pl.DeviceIdType.LOGICAL)
    pl.semaphore_wait(barrier, DEVICES)
    slot = 0 if race else me
    copies = [
        pltpu.make_async_remote_copy(
            x, y.at[slot], sent, received,
            device_id=device, device_id_type=pl.DeviceIdType.LOGICAL,
        )
        for device in range(DEVICES)
    ]  # fmt: skip
    for copy in copies:
        copy.start()
    for copy in copies:
        copy.wait()
    if signals:
        pl.semaphore_signal(more, signals)
