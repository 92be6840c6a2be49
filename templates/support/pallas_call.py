"""Calls of kernels: arrays in HBM, tables in SMEM, and the interpreter's threads."""

import functools
from typing import Any, NamedTuple

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

HBM = pl.BlockSpec(memory_space=pltpu.HBM)


class Call(NamedTuple):
    """The parameters of a program call. `order`: the table of ranks or moves that is a kernel's
    first argument, or None; `interpret`: False, True or `pltpu.InterpretParams`; `collective_id`:
    the collective id of the kernels."""

    order: Any
    interpret: Any
    collective_id: int | None

    def seen(self, kernel):
        """Return the kernel, with its first argument bound to None if there is no table."""
        return functools.partial(kernel, None) if self.order is None else kernel

    def run(self, kernel, *arrays, **settings):
        """Run a kernel on the table, if there is one, and on arrays in HBM; return its results."""
        specs = [HBM] * len(arrays)
        # A block spec tells only the kernel where an array is. Tell XLA too; otherwise it may place
        # the array elsewhere, and the kernel moves unrelated bytes of HBM.
        if not self.interpret:
            arrays = tuple(pltpu.with_memory_space_constraint(x, pltpu.HBM) for x in arrays)
        elif jax.sharding.get_abstract_mesh().size >= jax.local_device_count("cpu"):
            from .pallas_threads import refuse_to_hang  # perhaps no thread remains to copy arrays

            refuse_to_hang((arrays, settings["out_shape"], settings["scratch_shapes"]))
        if self.order is not None:
            from .pallas_tables import in_smem  # only if kernels take a table

            arrays, specs = (self.order, *arrays), [in_smem(self.order), *specs]
        interpret = pltpu.InterpretParams() if self.interpret is True else self.interpret
        return pl.pallas_call(kernel, in_specs=specs, interpret=interpret, **settings)(*arrays)

    def pushed(self, kernel, x, shape, scratch, *beside, **more):
        """Run a kernel that sends array `x` and return an array of `shape` that it receives, both
        in HBM. `beside`: the shapes of its scratch arrays in HBM."""
        shapes = [pltpu.HBM(each, x.dtype) for each in (shape, *beside)]
        out = {"out_shape": shapes, "out_specs": [HBM] * len(shapes), "scratch_shapes": scratch}
        params = pltpu.CompilerParams(has_side_effects=True, collective_id=self.collective_id)
        return self.run(kernel, x, **out, compiler_params=params, **more)[0]
