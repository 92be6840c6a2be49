"""One reshard on devices: its arrays, its call, and the check of every device's shard."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np

from bench.tpu_check.cases import Bundle, mesh_of
from bench.tpu_check.home import jax
from shardwright.codegen.checks.oracle import definition, sums
from shardwright.codegen.checks.oracle.definition import Bits, Placement

POISON = 0xFF
"""The byte that fills padding which must not be read."""


class Moved:
    """A module, its meshes, and its jitted call. The constructor raises LeftOutError if it cannot
    run here."""

    def __init__(self, bundle: Bundle) -> None:
        self.case = bundle.case()
        wide = np.dtype(jax.numpy.dtype(self.case.dtype)).itemsize == 8
        jax.config.update("jax_enable_x64", wide)
        self.module, self.options, self.ids = bundle.module(), bundle.options, self.case.devices()
        self.meshes = [
            mesh_of(side.axes, list(side.device_ids), self.ids)
            for side in (self.case.source, self.case.target)
        ]
        self.dtype = jax.numpy.dtype(self.case.dtype)

    @cached_property
    def call(self) -> Any:
        """The reshard as a function, under jit if both meshes have the same devices in the same
        order."""
        source, target = self.meshes

        def reshard(x: Any) -> Any:
            return self.module.reshard(x, source, target_mesh=target, **self.options)

        same = list(self.case.source.device_ids) == list(self.case.target.device_ids)
        return jax.jit(reshard, out_shardings=self.sharding) if same else reshard

    @property
    def sharding(self) -> Any:
        return self.module.target_sharding(self.meshes[1])

    def example(self, seed: int) -> tuple[Any, dict[int, Bits]]:
        """Return a source array of random bits (of small numbers if terms are combined) with
        poisoned padding, and the expected target shard of each device with zero padding."""
        rng = np.random.default_rng(seed)
        made = sums.made_of(self.case.source, self.case.target, transposed=False)
        if max(map(len, made)) > 1 or self.case.target.unreduced:
            given, wanted = self._numbers(made, rng)
        else:
            shape = (sums.terms_of(self.case.source), *self.case.shape)
            given = rng.integers(0, 2 if self.dtype == bool else 256, self._bytes(shape), np.uint8)
            given = given.view(definition.storage(self.case.dtype)).reshape(shape)
            wanted = given[[of[0] for of in made]]
        shards = self._local(self.case.source, given, POISON)
        return self._placed(shards), self._local(self.case.target, wanted, 0)

    def _bytes(self, shape: tuple[int, ...]) -> int:
        return math.prod(shape) * int(self.dtype.itemsize)

    def _numbers(self, made: tuple[tuple[int, ...], ...], rng: Any) -> tuple[Bits, Bits]:
        count, side = sums.terms_of(self.case.source), self.case.source
        side = side if side.unreduced else self.case.target
        numbers = rng.integers(0, 8, (count, *self.case.shape)).astype(np.float64)
        combine = {"sum": np.sum, "max": np.max, "min": np.min}[side.operator]
        neutral = sums.identity(self.case.dtype, side.operator)
        wanted = [
            combine(numbers[list(of)], axis=0) if of else np.full(self.case.shape, neutral)
            for of in made
        ]
        storage, right = definition.storage(self.case.dtype), np.stack(wanted).astype(self.dtype)
        return numbers.astype(self.dtype).view(storage), right.view(storage)

    def _local(self, side: Placement, terms: Bits, fill: int) -> dict[int, Bits]:
        """Return the padded local array of each device, cut from the terms of a tensor, [terms,
        ...]. `fill`: the byte that fills the padding."""
        term, held = sums.terms_held(side), definition.holdings(side, self.case.shape)
        largest = definition.largest(side, self.case.shape)
        found = {}
        for device, along in held.items():
            cut = tuple(slice(run[0], run[-1] + 1) if len(run) else slice(0, 0) for run in along)
            shard = terms[term[device]][cut]
            local = np.empty(largest, terms.dtype)
            local.view(np.uint8)[...] = fill
            local[tuple(map(slice, shard.shape))] = shard
            found[device] = local.reshape(((1,) if side.unreduced else ()) + largest)
        return found

    def _placed(self, shards: dict[int, Bits]) -> Any:
        arrays = [
            jax.device_put(local.view(self.dtype), jax.devices()[self.ids.index(device)])
            for device, local in shards.items()
        ]
        sharding = self.module.source_sharding(self.meshes[0])
        shape = self.module.PADDED_SOURCE_SHAPE
        return jax.make_array_from_single_device_arrays(shape, sharding, arrays)

    def poison(self) -> None:
        """Fill free memory, so that an unwritten result differs from an earlier one."""
        shape = self.module.PADDED_TARGET_SHAPE
        full = jax.numpy.full(shape, 1, dtype=self.dtype, device=self.sharding)
        jax.block_until_ready(full).delete()

    def compare(self, y: Any, wanted: dict[int, Bits], said: str) -> None:
        """Raise ValueError for the first device whose shard differs from the expected one in any
        bit."""
        numbers = {device: number for number, device in enumerate(jax.devices())}
        for shard in y.addressable_shards:
            device = self.ids[numbers[shard.device]]
            right = wanted[device]
            got = np.ascontiguousarray(np.asarray(shard.data)).view(right.dtype)
            if got.shape != right.shape:
                raise ValueError(
                    f"device {device}, {said}: got shape {got.shape}, expected {right.shape}"
                )
            wrong = np.flatnonzero(got != right)
            if wrong.size:
                first = wrong[:3].tolist()
                raise ValueError(
                    f"device {device}, {said}: {wrong.size} wrong elements, the first at {first}"
                )
