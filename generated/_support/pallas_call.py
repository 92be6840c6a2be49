"""How a program calls its kernels: arrays in HBM, tables in SMEM, and the interpreter's threads."""

import functools
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

HBM = pl.BlockSpec(memory_space=pltpu.HBM)


class Call(NamedTuple):
    """How a program is called. `order`: the table that kernels take first, if any: of ranks, or of
    moves; `interpret`: how they are interpreted, if they are; `collective_id`: theirs."""

    order: Any
    interpret: Any
    collective_id: int | None

    def seen(self, kernel):
        """Return a kernel that takes a table first as it is called, which may be without one."""
        return functools.partial(kernel, None) if self.order is None else kernel

    def run(self, kernel, *arrays, **settings):
        """Return what a kernel makes of arrays in HBM, after the table where there is one."""
        tables = () if self.order is None else (self.order,)
        # Without an index of its own a grid's block has one of 64 bits where JAX has those.
        smem = [
            pl.BlockSpec(
                table.shape,
                lambda *_, rank=table.ndim: (np.int32(0),) * rank,
                memory_space=pltpu.SMEM,
            )
            for table in tables
        ]
        # A block spec tells the kernel alone where an array is; XLA has to be told too, or it may
        # place it elsewhere, and the kernel moves what happens to be in HBM.
        if not self.interpret:
            arrays = tuple(pltpu.with_memory_space_constraint(x, pltpu.HBM) for x in arrays)
        elif jax.sharding.get_abstract_mesh().size >= jax.local_device_count("cpu"):
            from .pallas_threads import refuse_to_hang  # no device is spare, nor perhaps a thread

            refuse_to_hang((arrays, settings["out_shape"], settings["scratch_shapes"]))
        return pl.pallas_call(
            kernel,
            in_specs=[*smem, *[HBM] * len(arrays)],
            interpret=pltpu.InterpretParams() if self.interpret is True else self.interpret,
            **settings,
        )(*tables, *arrays)

    def pushed(self, kernel, x, shape, scratch, *beside, **more):
        """Return what a kernel that sends makes of one array: another in HBM. `beside`: shapes of
        what it has there besides, of which nothing is left."""
        parameters = {"has_side_effects": True, "collective_id": self.collective_id}
        found, *_ = self.run(
            kernel,
            x,
            out_shape=[pltpu.HBM(each, x.dtype) for each in (shape, *beside)],
            out_specs=[HBM] * (1 + len(beside)),
            scratch_shapes=scratch,
            compiler_params=pltpu.CompilerParams(**parameters),
            **more,
        )
        return found


def is_v5e(devices):
    """Return whether devices send directly over some offsets only."""
    return all("v5 lite" in device.device_kind for device in devices)
