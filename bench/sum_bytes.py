"""The bytes that devices receive to reduce partial sums: our plans and XLA's programs.

The reshards are random pairs of shardings of a matrix on 2x2x2, evenly split, with one axis
unreduced in the source. XLA's bytes come from the HLO of a sum over a dimension that this axis
splits, compiled for CPU devices and, ahead of time, for a v5e:2x4; ours come from the plan that
minimises bytes alone.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

import shardwright as sw
from bench.matmul_bytes import shardings
from shardwright.codegen.backends.jax_host import spec_of
from shardwright.codegen.moves.plan import plan as plan_of
from shardwright.codegen.moves.xla import received

COUNT = 60
AXES = {"x": 2, "y": 2, "z": 2}
SHAPE = (1024, 1024)
QUICK = "switch:8,latency=1e-12"
"""A network without latency, so that only bytes count."""

LINE = "from bench.sum_bytes import compiled; compiled()"
ENVIRONMENTS = {
    "CPU": {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=8"},
    "v5e": {
        "JAX_PLATFORMS": "cpu",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "TPU_ACCELERATOR_TYPE": "v5litepod-8",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_LOG_DIR": "disabled",
    },
}


@dataclass(frozen=True)
class SumBytes:
    """The bytes that all devices receive: by our plan, by the lower bound, and in XLA's programs
    for CPU and v5e."""

    ours: int
    least: int
    cpu: int
    v5e: int


def every() -> Iterator[sw.Reshard]:
    """Yield the reshards of int32 from every sharding with one unreduced axis to every sharding
    without unreduced axes. XLA does not convert int32."""
    for axis in AXES:
        rest = tuple(name for name in AXES if name != axis)
        before = [f'{text}, unreduced={{"{axis}"}}' for text in shardings(rest)]
        for source, target in itertools.product(before, shardings(tuple(AXES))):
            yield sw.Reshard(SHAPE, "int32", source, target, mesh=AXES)


def drawn(count: int, seed: int = 0) -> list[sw.Reshard]:
    """Return `count` random reshards of `every`."""
    return random.Random(seed).sample(list(every()), count)


def read(text: str, devices: int) -> int:
    """Return the bytes that all devices receive in a compiled program.

    A TPU's reduce-scatter is a fusion that contains an all-reduce, but moves only half of the
    all-reduce's bytes. Raise ValueError for collectives that are cut into several fusions.
    """
    if "chain_id" in text:
        raise ValueError("cannot count collectives that several fusions share")
    parts = re.split(r"(?m)^(?=\S)", text)
    scattered = "".join(part for part in parts if part.startswith("%all-reduce-scatter"))
    rest = "".join(part for part in parts if not part.startswith("%all-reduce-scatter"))
    return sum(received(rest, devices)[0]) + sum(received(scattered, devices)[0]) // 2


def compiled() -> None:
    """Read the two specs of a sum from each line. Print the bytes that all devices receive in XLA's
    program of the sum."""
    import jax
    from jax.experimental import topologies
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    devices = jax.devices()
    if "TPU_ACCELERATOR_TYPE" in os.environ:
        described = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x4")
        devices = sorted(described.devices, key=lambda device: device.id)
    mesh = Mesh(np.array(devices).reshape(tuple(AXES.values())), tuple(AXES))
    for line in sys.stdin:
        source, target = (
            NamedSharding(mesh, eval(spec, {"P": PartitionSpec})) for spec in json.loads(line)
        )
        x = jax.ShapeDtypeStruct((2, *SHAPE), "int32", sharding=source)
        text = jax.jit(lambda x: x.sum(0), out_shardings=target).lower(x).compile().as_text()
        print(read(text, mesh.size), flush=True)


def measured(reshards: list[sw.Reshard]) -> list[SumBytes]:
    """Return the bytes that all devices receive in each sum."""
    specs = [json.dumps((spec_of(r.source), spec_of(r.target))) for r in reshards]
    found = {name: _ran(specs, more) for name, more in ENVIRONMENTS.items()}
    plans = [plan_of(reshard, "direct", topology=QUICK) for reshard in reshards]
    return [
        SumBytes(plan.traffic.received_total, plan.traffic.bound_received_total, cpu, v5e)
        for plan, cpu, v5e in zip(plans, found["CPU"], found["v5e"], strict=True)
    ]


def _ran(specs: list[str], environment: dict[str, str]) -> list[int]:
    ran = subprocess.run(
        [sys.executable, "-c", LINE],
        input="\n".join(specs),
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise RuntimeError(ran.stderr[-2000:])
    return list(map(int, ran.stdout.split()))


def row(name: str, pairs: list[tuple[int, int]]) -> tuple[str, ...]:
    """Return the cells of one row: the ratios of our bytes to a peer's."""
    ratios = np.array([ours / other for ours, other in pairs if ours and other])
    less, more = (sum(np.sign(a - b) == sign for a, b in pairs) for sign in (-1, 1))
    mean = np.exp(np.log(ratios).mean())
    counts = f"{less} / {len(pairs) - less - more} / {more}"
    return name, str(len(pairs)), f"{mean:.3f}", f"{ratios.max():.3f}", counts


def main(count: int = COUNT) -> None:
    """Print the table. `count`: the number of random pairs."""
    table = Table(title="bytes into all devices, our plan's over others'")
    for heading in ("beside", "sums", "geometric mean", "worst", "less / equal / more"):
        table.add_column(heading, justify="right")
    found = measured(drawn(count))
    table.add_row(*row("XLA for CPU", [(each.ours, each.cpu) for each in found]))
    table.add_row(*row("XLA for v5e", [(each.ours, each.v5e) for each in found]))
    table.add_row(*row("least of both", [(e.ours, min(e.cpu, e.v5e)) for e in found]))
    table.add_row(*row("the bound", [(each.ours, each.least) for each in found]))
    Console().print(table)
