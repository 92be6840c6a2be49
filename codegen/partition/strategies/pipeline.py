"""Pipelines: stages on devices along one axis, and micro-batches that pass from each stage to the
next.

All stages compute at once, each on its own micro-batch (a `vmap` over stages, which the axis
splits). Then a roll passes their results on by one stage (a permute of one shard). After
`microbatches + stages - 1` ticks every micro-batch has passed through every stage. A pipeline is a
function of whole arrays, so it has an ordinary gradient, whose permutes run backward.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shardwright.codegen.partition.constraints import constrain
from shardwright.ir.axes import AxisRef
from shardwright.ir.errors import InputError, one_of
from shardwright.ir.mesh import Mesh
from shardwright.ir.sharding import DimSharding, Sharding

Stage = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Pipeline:
    """A function of stacked parameters and a batch. The first dimension of each parameter leaf has
    one entry per stage. `stage(parameters, x)`: a function that returns an array with the shape of
    `x`."""

    stage: Stage
    mesh: Mesh
    axis: str
    microbatches: int

    @property
    def stages(self) -> int:
        """The number of stages: one per device along the axis."""
        return self.mesh.axis_size(self.axis)

    @property
    def ticks(self) -> int:
        """The number of ticks. All stages compute in each tick."""
        return self.microbatches + self.stages - 1

    @property
    def bubble(self) -> float:
        """The fraction of ticks in which a stage has no micro-batch to compute."""
        return (self.stages - 1) / self.ticks

    def shardings(self, parameters: Any) -> Any:
        """Return the shardings of stacked parameters: each device has the parameters of its
        stage."""
        import jax

        return jax.tree.map(lambda leaf: self._split(len(leaf.shape), is_open=False), parameters)

    def __call__(self, parameters: Any, x: Any) -> Any:
        """Return the results of the last stage, one row for each row of `x`.

        Of n micro-batches each takes every n-th row, so a sharding of the rows of `x` shards each
        micro-batch. While the pipeline fills and drains, stages without a micro-batch compute on
        copies.

        Raises InputError if rows cannot be split into equal micro-batches, or if a parameter lacks
        one entry per stage.
        """
        import jax
        import jax.numpy as jnp

        self._check(parameters, x)
        count = self.microbatches
        batches = jnp.swapaxes(x.reshape(-1, count, *x.shape[1:]), 0, 1)
        drained = jnp.broadcast_to(batches[-1:], (self.stages - 1, *batches.shape[1:]))
        state = jnp.broadcast_to(batches[:1], (self.stages, *batches.shape[1:]))
        numbers = jnp.arange(self.stages).reshape(-1, *(1,) * x.ndim)
        split = self._split(x.ndim + 1, is_open=True)

        def tick(state: Any, batch: Any) -> Any:
            state = constrain(jnp.where(numbers == 0, batch[None], state), split)
            given = constrain(jax.vmap(self.stage)(parameters, state), split)
            return jnp.roll(given, 1, axis=0), given

        _, given = jax.lax.scan(tick, state, jnp.concatenate([batches, drained]))
        last = given[:, -1][self.stages - 1 :]
        return jnp.swapaxes(last, 0, 1).reshape(x.shape)

    def _split(self, rank: int, is_open: bool) -> Sharding:
        rest = (DimSharding((), is_open),) * (rank - 1)
        return Sharding(self.mesh, (DimSharding((AxisRef(self.axis),)), *rest))

    def _check(self, parameters: Any, x: Any) -> None:
        import jax

        if x.shape[0] % self.microbatches:
            raise InputError(
                "the rows must divide into equal micro-batches",
                argument="x",
                got=f"{x.shape[0]} rows",
                expected=f"a multiple of {self.microbatches}",
            )
        for leaf in jax.tree.leaves(parameters):
            if not leaf.shape or leaf.shape[0] != self.stages:
                raise InputError(
                    "parameters of a pipeline must be stacked, one entry per stage",
                    argument="parameters",
                    got=str(list(leaf.shape)),
                    expected=f"[{self.stages}, …]",
                )


def pipeline(stage: Stage, mesh: Mesh, axis: str, microbatches: int) -> Pipeline:
    """Return the pipeline of a stage function along `axis` of a mesh, with one stage per device.

    If another axis splits rows, partition the gradient with `mode="cheapest"`: then gradients of
    parameters are summed over that axis once, after the loop, instead of in every tick.

    Raises InputError if `axis` is not an axis of the mesh, or for fewer than one micro-batch.
    """
    if axis not in mesh.names:
        raise InputError(
            "a pipeline must run along an axis of the mesh",
            argument="axis",
            got=axis,
            expected=one_of(mesh.names),
        )
    if microbatches < 1:
        raise InputError(
            "a pipeline needs at least one micro-batch",
            argument="microbatches",
            got=str(microbatches),
            expected="1, 2, …",
        )
    return Pipeline(stage, mesh, axis, microbatches)
