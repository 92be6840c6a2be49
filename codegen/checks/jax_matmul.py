"""Run an emitted plain JAX matmul on forced CPU devices. Used in workers only."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardwright.codegen.checks.compare import MismatchError, expect
from shardwright.codegen.checks.jax_devices import to_bits, wide_types
from shardwright.codegen.checks.matmul_case import SIDES, MatmulCase
from shardwright.codegen.checks.matmul_compare import constants, same_product, wide_numbers
from shardwright.codegen.checks.oracle import definition as oracle
from shardwright.codegen.checks.oracle.definition import Bits, Placement
from shardwright.codegen.checks.oracle.products import (
    Numbers,
    Product,
    cotangents,
    products,
    value_of,
)
from shardwright.codegen.checks.oracle.sums import array_of, array_shape

__all__ = ["CHECKS", "MatmulExecution", "constants", "multiplied", "run"]

CHECKS = ("constants", "index functions", "values", "padding", "pad", "unpad")


def run(module: ModuleType, case: MatmulCase) -> tuple[str, ...]:
    """Check a matmul module, and multiply with it if `case.execute`; return the names of the checks
    passed. Raises MismatchError."""
    constants(module, case)
    return multiplied(MatmulExecution, module, case) if case.execute else CHECKS[:2]


def multiplied(
    kind: type[MatmulExecution], module: ModuleType, case: MatmulCase
) -> tuple[str, ...]:
    """Run a matmul module, and its gradients if `case.derivative`, in an execution of class
    `kind`. Return the names of the checks passed."""
    wide = max((case.dtype, case.out_dtype), key=lambda name: jnp.dtype(name).itemsize)
    with wide_types(wide):
        execution = kind(module, case)
        shapes, places = case.shapes[:2], case.placements[:2]
        for seed, fill in enumerate(execution.poisons()):
            for each in products(case.dtype, case.out_dtype, shapes, places, seed):
                with execution.observed(seed):
                    execution.once(each, fill)
                if case.derivative:
                    with execution.observed(seed):
                        execution.transpose(each, fill, seed)
        with execution.observed(seed):
            execution.eager(each, fill)
    return (*CHECKS, "derivative") if case.derivative else CHECKS


class MatmulExecution:
    """One module on its devices: JAX's device i represents the i-th of the case's device ids."""

    def __init__(self, module: ModuleType, case: MatmulCase) -> None:
        self.module, self.case, self.ids = module, case, case.devices()
        place = case.placements[0]
        devices = np.empty(len(place.device_ids), dtype=object)
        for position, device in enumerate(place.device_ids):
            devices[position] = jax.devices()[self.ids.index(device)]
        names = tuple(name for name, _ in place.axes)
        sizes = tuple(size for _, size in place.axes)
        self.mesh = jax.sharding.Mesh(devices.reshape(sizes), names)
        wanted = module.out_sharding(self.mesh)
        options = self.options()
        self.function = jax.jit(
            lambda a, b: module.matmul(a, b, self.mesh, **options), out_shardings=wanted
        )

    def options(self) -> dict[str, Any]:
        """Return the module's arguments other than operands and mesh."""
        return {}

    def observed(self, seed: int) -> AbstractContextManager[None]:
        """Return the context in which to run the module; `seed` selects the poison. In
        subclasses, the context raises MismatchError."""
        del seed
        return nullcontext()

    def poisons(self) -> tuple[float, float]:
        """Return two values with which to pad operands; neither may affect a result."""
        floating = jnp.issubdtype(jnp.dtype(self.case.dtype), jnp.floating)
        return (float("nan"), 3.0) if floating else (5.0, 3.0)

    def once(self, product: Product, fill: float) -> None:
        """Multiply two operands in a jit, and compare every device's result."""
        self._compare(product, jax.block_until_ready(self.function(*self._both(product, fill))))

    def eager(self, product: Product, fill: float) -> None:
        """Multiply two operands outside a jit, and compare the result; then check `pad_lhs` and
        `pad_rhs`."""
        a, b = self._both(product, fill)
        self._compare(product, self._eager(a, b))
        self._pad((product.lhs, product.rhs))

    def _eager(self, a: Any, b: Any) -> Any:
        return jax.block_until_ready(self.module.matmul(a, b, self.mesh, **self.options()))

    def transpose(self, product: Product, fill: float, seed: int) -> None:
        """Check both operands' cotangents, computed from a cotangent of the result with poisoned
        padding."""
        case = self.case
        wanted = cotangents(product, case.placements, (case.dtype, case.out_dtype), seed)
        given = self.given(2, self._terms(2, wanted.result), fill)
        _, pull = jax.vjp(self.function, *self._both(product, fill))
        for number, found in enumerate(pull(given)):
            expect("dtype of a cotangent", str(found.dtype), case.dtype)
            values = self._slots(number, wanted.operands[number])
            within = 0 if wanted.within is None else self._slots(number, wanted.within[number])
            # -0.0 is as correct as 0.0.
            if not (np.abs(np.asarray(found, np.float64) - values) <= within).all():
                raise MismatchError(f"the derivative: the cotangent of {SIDES[number]} is wrong")

    def _terms(self, number: int, values: Numbers) -> Numbers:
        """Return `values` or, if side `number` is a partial sum, an array in which every term
        equals `values`."""
        place = self.case.placements[number]
        return np.broadcast_to(values, array_shape(place, self.case.shapes[number]))

    def _slots(self, number: int, values: Numbers) -> Numbers:
        bits = self._terms(number, values.astype(np.float64)).view(np.uint64)
        place = array_of(self.case.placements[number])
        padded: Numbers = oracle.padded(place, bits, 0).view(np.float64)
        return padded

    def _both(self, product: Product, fill: float) -> tuple[Any, Any]:
        return self.given(0, product.lhs, fill), self.given(1, product.rhs, fill)

    def given(self, number: int, values: Numbers, fill: float) -> Any:
        """Return an operand with poisoned padding on its devices."""
        place, side = array_of(self.case.placements[number]), SIDES[number]
        dtype = jnp.dtype(self.case.out_dtype if side == "out" else self.case.dtype)
        poison = int(to_bits(np.array(fill, dtype)))
        padded = oracle.padded(place, to_bits(values.astype(dtype)), poison).view(dtype)
        sharding = getattr(self.module, f"{side}_sharding")(self.mesh)
        return jax.make_array_from_callback(
            padded.shape, sharding, lambda index: padded[index], dtype=padded.dtype
        )

    def _pad(self, given: tuple[Numbers, Numbers]) -> None:
        for number, (side, values) in enumerate(zip(SIDES, given, strict=False)):
            array = values.astype(jnp.dtype(self.case.dtype))
            padded = to_bits(getattr(self.module, f"pad_{side}")(array))
            wanted = oracle.padded(array_of(self.case.placements[number]), to_bits(array), 0)
            expect(f"pad_{side}", padded.shape, wanted.shape)
            if not np.array_equal(padded, wanted):
                raise MismatchError(f"pad_{side}: elements are in the wrong places")

    def _compare(self, product: Product, y: Any) -> None:
        case, place = self.case, self.case.placements[2]
        expect("dtype of the result", str(y.dtype), case.out_dtype)
        wanted = self.module.out_sharding(self.mesh)
        if not y.sharding.is_equivalent_to(wanted, y.ndim):
            raise MismatchError(f"sharding of the result: got: {y.sharding}, expected: {wanted}")
        shape = array_shape(place, case.shapes[2])
        logical = to_bits(self.module.unpad(y))
        self.shards(y, logical, array_of(place))
        expect("shape of unpad(y)", logical.shape, shape)
        found = logical.view(jnp.dtype(case.out_dtype))
        same_product(value_of(wide_numbers(found), place), product, case.out_dtype)

    def shards(self, y: Any, logical: Bits, place: Placement) -> None:
        """Check that every device has its part of the logical result, bitwise equal on replicas,
        with zero padding."""
        numbers = {device: number for number, device in enumerate(jax.devices())}
        local = oracle.largest(place, logical.shape)
        exact = oracle.shards(place, logical)
        for shard in y.addressable_shards:
            device = self.ids[numbers[shard.device]]
            wanted = oracle.padded_shard(exact[device], local)
            if not np.array_equal(to_bits(shard.data), wanted):
                raise MismatchError(f"device {device}: wrong result, or nonzero padding")
