"""One process of a group under `jax.distributed`: runs emitted XLA modules against the oracle.

Arguments: rank, processes, local devices, port of the first process. A case a line of standard
input (`Case.to_json`), "ok" or what is wrong a line of standard output; what libraries print goes
to standard error. All processes are given the same lines and do the same in the same order, each
with the shards of its own devices.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={sys.argv[3]}"

from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import numpy as np

from shardwright.codegen.checks import compare
from shardwright.codegen.checks.case import Case
from shardwright.codegen.checks.compare import MismatchError, Run
from shardwright.codegen.checks.jax_devices import to_bits, to_jax, wide_types
from shardwright.codegen.checks.load import load
from shardwright.codegen.checks.oracle import definition as oracle
from shardwright.codegen.checks.oracle.definition import Bits, Placement
from shardwright.codegen.checks.workers.serve import own_stdout
from shardwright.codegen.operations.verify.worker import brief


def main(rank: int, processes: int, port: int) -> None:
    """Answer every line."""
    answers = own_stdout()
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", num_processes=processes, process_id=rank)
    for line in sys.stdin:
        case = Case.from_json(line)
        with wide_types(case.dtype):
            answers.write(f"{verdict(case)}\n")
    jax.distributed.shutdown()


def verdict(case: Case) -> str:
    """What is wrong with a module, "ok" if nothing is."""
    try:
        Hosted(load(case.module), case).check()
    except MismatchError as error:
        return str(error)
    except Exception as error:
        return brief(error)
    return "ok"


class Hosted:
    """A module on the devices of all processes: the i-th of all ids is the i-th device."""

    def __init__(self, module: ModuleType, case: Case) -> None:
        self.module, self.case = module, case
        self.devices = dict(zip(case.devices(), jax.devices(), strict=False))
        self.meshes = [self._mesh(side) for side in (case.source, case.target)]
        self.sharding = module.source_sharding(self.meshes[0])
        self.wanted = module.target_sharding(self.meshes[1])

    def check(self) -> None:
        """Values of the result and of the gradient; pad and unpad of arrays of all processes."""
        for run in compare.runs(self.case):
            x = self._array(oracle.padded(self.case.source, run.tensor, run.fill), self.sharding)
            y = self._reshard(x)
            self._compare(run, y, self.case.target)
        self._pad_and_unpad(run, y)
        if self.case.derivative:
            self._gradient(run, x)

    def _mesh(self, placement: Placement) -> jax.sharding.Mesh:
        names, sizes = zip(*placement.axes, strict=True)
        devices = np.array([self.devices[device] for device in placement.device_ids])
        return jax.sharding.Mesh(devices.reshape(sizes), names)

    def _reshard(self, x: Any) -> Any:
        source, target = self.meshes
        return self._program(
            lambda x: self.module.reshard(x, source, target_mesh=target), self.wanted
        )(x)

    def _program(self, function: Callable[..., Any], out: Any) -> Callable[..., Any]:
        """Jitted where both meshes list the same devices in the same order."""
        same = tuple(self.case.source.device_ids) == tuple(self.case.target.device_ids)
        return jax.jit(function, out_shardings=out) if same else function

    def _array(self, bits: Bits, sharding: Any) -> Any:
        values = to_jax(bits, self.case.dtype)
        return jax.make_array_from_callback(
            values.shape, sharding, lambda index: values[index], dtype=values.dtype
        )

    def _compare(self, run: Run, y: Any, placement: Placement) -> None:
        """The shards of this process are the oracle's, their padding zero."""
        numbers = {device: number for number, device in self.devices.items()}
        got = {numbers[shard.device]: to_bits(shard.data) for shard in y.addressable_shards}
        local = oracle.largest(placement, self.case.shape)
        expected = {
            device: oracle.padded_shard(shard, local)
            for device, shard in oracle.shards(placement, run.tensor).items()
            if self.devices[device] in jax.local_devices()
        }
        compare.results(run, got, expected)

    def _pad_and_unpad(self, run: Run, y: Any) -> None:
        tensor = to_jax(run.tensor, self.case.dtype)
        # Not by device_put, which compares what processes give and finds NaNs unequal.
        x = self._array(to_bits(self.module.pad(tensor)), self.sharding)
        self._compare(run, self._reshard(x), self.case.target)
        everywhere = jax.sharding.NamedSharding(self.wanted.mesh, jax.sharding.PartitionSpec())
        back = jax.jit(self.module.unpad, out_shardings=everywhere)(y)
        # As its docstring says: in a jit XLA on CPU moves bfloat16 as float32, which changes NaNs.
        nans = self.case.dtype == "bfloat16" and np.isnan(np.asarray(tensor, np.float32))
        expected = np.where(nans, 0, run.tensor)
        for shard in back.addressable_shards:
            got = np.where(nans, 0, to_bits(shard.data))
            compare.same_bits("unpad(y)", got, expected, run.tensor)

    def _gradient(self, run: Run, x: Any) -> None:
        """Cotangents of the result, moved back."""
        weights = self._array(oracle.padded(self.case.target, run.tensor, run.fill), self.wanted)
        # Not the gradient of a sum of products: XLA on CPU multiplies subnormals as zeros.
        _, moved_back = jax.vjp(self._reshard, x)
        with compare.said_of("the gradient"):
            self._compare(run, *moved_back(weights), self.case.source)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[4]))
