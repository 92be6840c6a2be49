"""Run an emitted JAX module on forced CPU devices. The workers of all JAX backends share this.

`JAX_PLATFORMS=cpu` and `--xla_force_host_platform_device_count` must be set before the import.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardwright.codegen.checks import compare
from shardwright.codegen.checks.case import Case
from shardwright.codegen.checks.compare import MismatchError, Run
from shardwright.codegen.checks.oracle import definition as oracle
from shardwright.codegen.checks.oracle.definition import Bits, Placement
from shardwright.codegen.checks.oracle.sums import Numbers
from shardwright.codegen.checks.terms import (
    cotangent_back,
    own_terms,
    random_terms,
    reduces,
    runs,
    sums_within_bound,
)


class Execution:
    """One module on its devices: JAX's device i represents the i-th of the case's device ids."""

    def __init__(self, module: ModuleType, case: Case) -> None:
        self.module, self.case = module, case
        self.ids = case.devices()
        self.source_mesh = self._mesh(case.source)
        self.target_mesh = self._mesh(case.target)
        self.function = self._function()

    def options(self) -> dict[str, Any]:
        """Return the arguments of `reshard` other than arrays and meshes."""
        return {}

    def observed(self, run: Run) -> AbstractContextManager[None]:
        """Return the context in which to execute `run`. A subclass may check the execution in it
        and raise MismatchError."""
        del run  # plain devices need no context
        return nullcontext()

    def passed(self) -> tuple[str, ...]:
        """Execute the module on every bit plane; return the names of the checks passed."""
        for each in runs(self.case, as_bits):
            result = self.once(each)
        self.pad_and_unpad(each, result)
        started = self.started(each)
        if not self.case.derivative:
            return started
        self.transpose(each)
        return (*started, "derivative")

    def _mesh(self, placement: Placement) -> jax.sharding.Mesh:
        available = jax.devices()
        devices = np.empty(len(placement.device_ids), dtype=object)
        for position, device in enumerate(placement.device_ids):
            devices[position] = available[self.ids.index(device)]
        sizes = tuple(size for _, size in placement.axes)
        return jax.sharding.Mesh(devices.reshape(sizes), tuple(name for name, _ in placement.axes))

    def started(self, run: Run) -> tuple[str, ...]:
        """Execute `reshard_start` and `reshard_done`, and compare the result. Return the name of
        the check, or no name if the module lacks these functions."""
        if "reshard_start" not in self.module.__all__:
            return ()
        module, options = self.module, self.options()

        def reshard(x: Any) -> Any:
            start = module.reshard_start(
                x, self.source_mesh, target_mesh=self.target_mesh, **options
            )
            return module.reshard_done(start)

        wanted = module.target_sharding(self.target_mesh)
        with compare.said_of("reshard_start and reshard_done"):
            self.once(run, jax.jit(reshard, out_shardings=wanted))
        return ("start and end",)

    def _function(self) -> Any:
        options = self.options()

        def reshard(x: Any) -> Any:
            return self.module.reshard(x, self.source_mesh, target_mesh=self.target_mesh, **options)

        same_order = tuple(self.case.source.device_ids) == tuple(self.case.target.device_ids)
        wanted = self.module.target_sharding(self.target_mesh)
        return jax.jit(reshard, out_shardings=wanted) if same_order else reshard

    def once(self, run: Run, function: Any = None) -> Any:
        """Execute `function`, by default `reshard`, and compare every device's shard with the
        oracle; return the result."""
        x, given = self.given(run), self._padded(run)
        with self.observed(run):
            y = jax.block_until_ready((function or self.function)(x))
        wanted = self.module.target_sharding(self.target_mesh)
        self._compare(run, y, wanted, self.case.target_array)
        if not np.array_equal(to_bits(x), given):
            raise MismatchError("the input was changed")
        return y

    def given(self, run: Run) -> Any:
        """Return the padded source array on its devices."""
        sharding = self.module.source_sharding(self.source_mesh)
        return jax.device_put(to_jax(self._padded(run), self.case.dtype), sharding)

    def _padded(self, run: Run) -> Bits:
        return oracle.padded(self.case.source_array, run.given, run.fill)

    def bounded(self) -> tuple[str, ...]:
        """Check that rounded sums are within their error bound and equal on replicas. Return the
        name of the check, or no name for a case without such sums. XLA may round after each
        addition, as it does for float16 on CPU."""
        case = self.case
        if not reduces(case) or case.source.operator != "sum" or "float" not in case.dtype:
            return ()
        terms = as_bits(random_terms(case), case.dtype)
        given = to_jax(oracle.padded(case.source_array, terms, 0), case.dtype)
        y = self.function(jax.device_put(given, self.module.source_sharding(self.source_mesh)))
        empty, made = np.zeros(case.target_shape, terms.dtype), self._shards(y)
        got = {
            device: to_jax(_corner(made[device], shard), case.dtype).reshape(own.shape)
            for (device, shard), own in zip(
                oracle.shards(case.target_array, empty).items(),
                own_terms(case.target, case.target_array, empty).values(),
                strict=True,
            )
        }
        exact = to_jax(terms, case.dtype).astype(np.float64)
        wide = {device: each.astype(np.float64) for device, each in got.items()}
        sums_within_bound(case, exact, wide, rounds_each=True)
        return ("sums within bounds",)

    def transpose(self, run: Run) -> None:
        """Check the derivative: move a cotangent with poisoned padding back to the source."""
        given = oracle.padded(self.case.target_array, run.tensor, run.fill)
        wanted = self.module.source_sharding(self.source_mesh)
        x = jax.device_put(jnp.zeros(self.module.PADDED_SOURCE_SHAPE, self.case.dtype), wanted)
        y = to_jax(given, self.case.dtype)
        cotangent = jax.device_put(y, self.module.target_sharding(self.target_mesh))
        with self.observed(run), compare.said_of("the derivative"):
            _, pull = jax.vjp(self.function, x)
            (back,) = jax.block_until_ready(pull(cotangent))
            of = dataclasses.replace(run, tensor=cotangent_back(self.case, run.tensor))
            self._compare(of, back, wanted, self.case.source_array)

    def _compare(self, run: Run, y: Any, wanted: Any, placement: Placement) -> None:
        compare.expect("dtype of the result", str(y.dtype), self.case.dtype)
        if not y.sharding.is_equivalent_to(wanted, y.ndim):
            raise MismatchError(f"sharding of the result: got: {y.sharding}, expected: {wanted}")
        compare.results(run, self._shards(y), self._expected(run.tensor, placement))

    def _shards(self, y: Any) -> dict[int, Bits]:
        numbers = {device: number for number, device in enumerate(jax.devices())}
        return {
            self.ids[numbers[shard.device]]: to_bits(shard.data) for shard in y.addressable_shards
        }

    def _expected(self, tensor: Bits, placement: Placement) -> dict[int, Bits]:
        local = oracle.largest(placement, tensor.shape)
        exact = oracle.shards(placement, tensor)
        return {device: oracle.padded_shard(shard, local) for device, shard in exact.items()}

    def pad_and_unpad(self, run: Run, y: Any) -> None:
        """Check that pad(x) puts every element in its place and that unpad(y) returns the
        logical tensor."""
        given = to_jax(run.given, self.case.dtype)
        self.padded(run, self.module.pad(given), self.module.unpad(y))

    def padded(self, run: Run, pad: Any, unpad: Any) -> None:
        """Check the module's padding of a logical tensor, and its unpadding of the result."""
        padded = to_bits(pad)
        shape = oracle.padded(self.case.source_array, run.given, 0).shape
        compare.expect("shape of pad(x)", padded.shape, shape)
        inside = oracle.unpadded(self.case.source_array, self.case.source_shape, padded)
        compare.same_bits("pad(x)", inside, run.given, run.given)
        compare.same_bits("unpad(y)", to_bits(unpad), run.tensor, run.tensor)


def _corner(padded: Bits, shard: Bits) -> Bits:
    inside: Bits = np.ascontiguousarray(padded[tuple(map(slice, shard.shape))])
    return inside


@contextmanager
def wide_types(dtype: str) -> Iterator[None]:
    """Enable 64-bit types in JAX only for a dtype that needs them."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", dtype in ("int64", "float64"))
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


def to_jax(bits: Bits, dtype: str) -> Any:
    """Return a numpy array of the JAX dtype with these bits."""
    return bits.view(jnp.dtype(dtype))


def as_bits(numbers: Numbers, dtype: str) -> Bits:
    """Return the bits of numbers as values of a dtype."""
    return to_bits(numbers.astype(jnp.dtype(dtype)))


def to_bits(array: Any) -> Bits:
    """Return the bits of a JAX or numpy array."""
    values = np.asarray(array)
    bits: Bits = np.ascontiguousarray(values).view(f"u{values.itemsize}").reshape(values.shape)
    return bits
