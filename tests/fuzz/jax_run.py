"""Run the JAX module of a case on forced CPU devices and judge it. In a worker only.

Pallas kernels run in TPU interpret mode, with races detected and fresh memory poisoned.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from shardwright.codegen.backends.pallas_tpu.verify import poison
from shardwright.codegen.backends.pallas_tpu.verify.interpreter import observed
from shardwright.codegen.checks.compare import MismatchError

from .case import Case, JaxUse, Side
from .reference import Array, Bits
from .values import (
    WrongError,
    assembled,
    bits_type,
    check_bits,
    check_target,
    cotangent,
    draws,
    given,
    nans_alike,
    numpy_dtype,
    padded,
    pulled,
)


def run(module: ModuleType, case: Case) -> None:
    """Move random bits; raise WrongError where what comes out is not what must."""
    assert isinstance(case.use, JaxUse)
    assert jax.config.jax_enable_x64 == case.use.x64, "another kind of worker"
    if case.backend == "pallas_tpu":
        # The interpreter numbers devices by the first mesh that caches know with the same axes,
        # whatever their order (jax 0.10.2).
        jax.clear_caches()
    try:
        _Run(module, case, case.use).check()
    except MismatchError as error:  # of what a kernel does to memory
        raise WrongError(str(error)) from error


class _Run:
    def __init__(self, module: ModuleType, case: Case, use: JaxUse) -> None:
        self.module, self.case, self.use = module, case, use
        available = jax.devices()
        self.devices = {
            device: available[number]
            for device, number in zip(case.device_ids, use.devices, strict=True)
        }
        self.source, self.target = Array.of(case, case.source), Array.of(case, case.target)
        self.source_mesh, self.target_mesh = self._mesh(case.source), self._mesh(case.target)
        self.options: dict[str, Any] = {}
        if case.backend == "pallas_tpu":
            self.options["interpret"] = poison.interpret_params()
        if use.names_target:
            self.options["target_mesh"] = self.target_mesh

    def _mesh(self, side: Side) -> Mesh:
        """The mesh that a user gives for a side."""
        devices = np.array([self.devices[device] for device in side.device_ids])
        names, sizes = zip(*side.axes, strict=True) if side.axes else ((), ())
        if self.use.other_axes:
            names, sizes = ("own",), (len(devices),)
        kind = getattr(AxisType, self.use.axis_types)
        return Mesh(devices.reshape(sizes), names, axis_types=(kind,) * len(names))

    def check(self) -> None:
        with self._set_mesh():
            self.function = self._function()
            for draw in draws(self.case):
                self._once(draw)
                if self.use.derivative:
                    self._derivative(draw)
            if self.use.batch:
                self._batch()

    def _set_mesh(self) -> contextlib.AbstractContextManager[Any]:
        match self.use.set_mesh:
            case "source":
                return jax.set_mesh(self.source_mesh)
            case "target":
                return jax.set_mesh(self.target_mesh)
            case _:
                return contextlib.nullcontext()

    def reshard(self, x: Any) -> Any:
        """The module's function, on the meshes of the case."""
        return self.module.reshard(x, self.source_mesh, **self.options)

    def _function(self) -> Any:
        """From the padded source array to the padded target array, or from and to logical ones."""
        if self.use.call == "eager":
            return self.reshard
        if self.use.call == "program":
            wanted = self._logical_target() if self.use.axis_types == "Auto" else None
            return jax.jit(
                lambda x: self.module.unpad(self.reshard(self.module.pad(x))), out_shardings=wanted
            )
        return jax.jit(self.reshard, out_shardings=self.module.target_sharding(self.target_mesh))

    def _logical_target(self) -> NamedSharding:
        """The target's sharding without the dimensions that `unpad` changes."""
        padded = self.module.target_sharding(self.target_mesh)
        pairs = zip(self.target.shape, self.target.padded_shape, padded.spec, strict=True)
        return NamedSharding(padded.mesh, P(*[axes if a == b else None for a, b, axes in pairs]))

    def _once(self, draw: int) -> None:
        bits = given(self.case, draw)
        if self.use.call == "program":
            x = self._logical(bits)
            with self._observed(draw):
                result = to_bits(jax.block_until_ready(self.function(x)), self.case)
            if self._says_payloads_change():
                bits, result = (nans_alike(self.case, each) for each in (bits, result))
            check_target(self.case, bits, result, "the program's result")
            return
        self._pad(bits)
        x = self._argument(bits, draw)
        before = to_bits(x, self.case)
        with self._observed(draw):
            y = jax.block_until_ready(self.function(x))
        self._check_result(bits, y)
        check_bits("the argument afterwards", to_bits(x, self.case), before)

    def _says_payloads_change(self) -> bool:
        """Whether the module says that payloads of NaNs do not stay where a jit pads."""
        said = " ".join(self.module.pad.__doc__.split())
        padded, shape = self.module.PADDED_SOURCE_SHAPE, self.module.SHAPE
        pads = padded[len(padded) - len(shape) :] != shape
        return pads and "NaN payloads" in said and f"{self.module.DTYPE} " in said

    def _check_result(self, bits: Bits, y: Any) -> None:
        """What every device has, and what `unpad` makes of it."""
        got = assembled("result", self.target, self._shards(y))
        check_target(self.case, bits, got, "result")
        check_bits("unpad(result)", to_bits(self.module.unpad(y), self.case), got)

    def _pad(self, bits: Bits) -> None:
        """Every element in its slot."""
        got = to_bits(self.module.pad(self._jax(bits)), self.case)
        if got.shape != self.source.padded_shape:
            raise WrongError(f"pad: got {got.shape}, expected {self.source.padded_shape}")
        check_bits("pad", got[self.source.slots()], bits)

    def _derivative(self, draw: int) -> None:
        """Cotangents move back, tangents as values do."""
        x = self._placed(self.source, given(self.case, draw), draw)
        with self._observed(draw):
            if self.use.derivative == "jvp":
                tangent = given(self.case, draw + 2)
                t = self._placed(self.source, tangent, draw)
                _, y = self._lifted(lambda x, t: jax.jvp(self.reshard, (x,), (t,)))(x, t)
            else:
                array = cotangent(self.case, draw)
                w = self._placed(self.target, array, draw)
                y = self._lifted(lambda x, w: jax.vjp(self.reshard, x)[1](w)[0])(x, w)
            jax.block_until_ready(y)
        if self.use.derivative == "jvp":
            got = assembled("tangent", self.target, self._shards(y))
            check_target(self.case, tangent, got, "tangent")
        else:
            got = assembled("cotangent", self.source, self._shards(y))
            check_bits("cotangent", got, pulled(self.case, array))

    def _lifted(self, function: Any) -> Any:
        """The function, under jit where the case is."""
        if self.use.call == "eager":
            return function
        side = self.module.source_sharding(self.source_mesh)
        if self.use.derivative == "jvp":
            side = (self.module.target_sharding(self.target_mesh),) * 2
        return jax.jit(function, out_shardings=side)

    def _batch(self) -> None:
        """A dimension in front that is mapped over."""
        draws = [given(self.case, 4 + number) for number in range(self.use.batch)]
        arrays = [padded(self.source, bits, _rng(self.case, 4), self.case.dtype) for bits in draws]
        sharding = self.module.source_sharding(self.source_mesh)
        sharding = NamedSharding(sharding.mesh, P(None, *sharding.spec))
        x = jax.device_put(_values(np.stack(arrays), self.case), sharding)
        with self._observed(0):
            y = jax.block_until_ready(jax.vmap(self.reshard)(x))
        for number, bits in enumerate(draws):
            shards = {device: shard[number] for device, shard in self._shards(y).items()}
            got = assembled(f"vmap {number}", self.target, shards)
            check_target(self.case, bits, got, f"vmap {number}")

    @contextlib.contextmanager
    def _observed(self, draw: int) -> Iterator[None]:
        """What the interpreter of kernels sees becomes an error."""
        if self.case.backend != "pallas_tpu":
            yield
            return
        poison.choose(poison.MODES[draw % 2])
        with observed():
            yield

    def _jax(self, bits: Bits) -> Any:
        """A logical array, as a user has it before padding."""
        return jnp.asarray(_values(bits, self.case))

    def _logical(self, bits: Bits) -> Any:
        """A logical array that a program takes: on Explicit axes JAX wants it on the mesh, the one
        that is set if any is."""
        x = self._jax(bits)
        mesh = self.target_mesh if self.use.set_mesh == "target" else self.source_mesh
        explicit = self.use.axis_types == "Explicit"
        return jax.device_put(x, NamedSharding(mesh, P())) if explicit else x

    def _placed(self, array: Array, bits: Bits, draw: int) -> Any:
        """A padded array of either side on its devices, sharded as the module says."""
        if array is self.source:
            sharding = self.module.source_sharding(self.source_mesh)
        else:
            sharding = self.module.target_sharding(self._result_mesh())
        values = padded(array, bits, _rng(self.case, draw), self.case.dtype)
        return jax.device_put(_values(values, self.case), sharding)

    def _result_mesh(self) -> Mesh:
        """The mesh of results: the given one, or one that the module makes, without types of axes
        unless it is the source's."""
        is_source = self.case.same_order and self.case.source.axes == self.case.target.axes
        if self.use.names_target or is_source:
            return self.target_mesh
        return Mesh(self.target_mesh.devices, self.target_mesh.axis_names)

    def _argument(self, bits: Bits, draw: int) -> Any:
        """The padded source array; whole on every device where the case shards it otherwise."""
        x = self._placed(self.source, bits, draw)
        return x if self.use.placed else jax.device_put(x, NamedSharding(x.sharding.mesh, P()))

    def _shards(self, y: Any) -> dict[int, Bits]:
        """What every logical device has."""
        if str(y.dtype) != self.case.dtype:
            raise WrongError(f"got {y.dtype}, expected {self.case.dtype}")
        names = {device: name for name, device in self.devices.items()}
        return {names[s.device]: to_bits(s.data, self.case) for s in y.addressable_shards}


def _rng(case: Case, draw: int) -> np.random.Generator:
    return np.random.default_rng([case.id, draw, 2])


def _values(bits: Bits, case: Case) -> Any:
    return bits.view(numpy_dtype(case.dtype))


def to_bits(array: Any, case: Case) -> Bits:
    """The bits of a JAX array."""
    if str(array.dtype) != case.dtype:
        raise WrongError(f"got {array.dtype}, expected {case.dtype}")
    values = np.asarray(array)
    return np.ascontiguousarray(values).view(bits_type(case.dtype)).reshape(values.shape)
