"""Compare the plans of a reshard: direct, basis, XLA's own, and the lower bound."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from shardwright.codegen.moves.basis.traffic import traffic_of
from shardwright.codegen.moves.memory import held_at_once
from shardwright.codegen.moves.plan import default_network, network_of, plan
from shardwright.codegen.moves.xla import XlaCollectives
from shardwright.codegen.moves.xla_cost import seconds_of_xla
from shardwright.codegen.spec.description import Description
from shardwright.ir.errors import InputError
from shardwright.ir.exchange import ids_of
from shardwright.ir.plan import Plan
from shardwright.ir.reshard import Reshard

XLA_SECONDS = 300
# The maximum number of devices for which XLA compiles a program on the host.
MOST_XLA_DEVICES = 512


@dataclass(frozen=True)
class Row:
    """One plan in the comparison. If there is no plan, its numbers are None, and `steps` states
    the reason."""

    name: str
    received_max: int | None  # the bytes that the busiest device receives
    received_total: int | None  # the bytes that all devices receive
    peak: int | None  # the maximum bytes on a device at any time
    seconds: float | None
    steps: str  # the names of the steps
    topology: str


def compare(
    reshard: Reshard, topology: str | None = None, memory_limit: int | None = None
) -> tuple[Row, ...]:
    """Return the rows of `shardwright plan --compare`: direct, basis, XLA, and the lower bound.

    `topology`: the topology that prices the plans, by default a switch. `memory_limit`: the maximum
    bytes of the tensor on a device at any time.
    """
    network = network_of(reshard, topology) if topology else default_network(reshard)
    model = str(network.topology)
    rows = []
    for strategy in ("direct", "basis"):
        try:
            rows.append(_row(plan(reshard, strategy, topology=model, memory_limit=memory_limit)))
        except InputError as error:
            rows.append(Row(strategy, None, None, None, None, error.rule, model))
    found = xla_plan(reshard)
    if isinstance(found, str):
        rows.append(Row("XLA", None, None, None, None, found, model))
    else:
        figures = (found.received_max, found.received_total, found.peak)
        seconds = seconds_of_xla(found, network, ids_of(reshard.source.mesh))
        rows.append(Row("XLA", *figures, seconds, found.steps, model))
    return (*rows, _bound(reshard, model))


def _row(made: Plan) -> Row:
    moved, expected = made.traffic, made.prediction
    assert expected is not None
    figures = (moved.received_max, moved.received_total, expected.peak_bytes, expected.seconds)
    return Row(made.strategy, *figures, made.ops or "none", expected.topology)


def _bound(reshard: Reshard, model: str) -> Row:
    bound = traffic_of(reshard, ())
    network = network_of(reshard, model)
    least, peak = bound.bound_received_max, held_at_once(reshard)
    topology = network.topology
    seconds = topology.least_latency + least / topology.ingest if least else 0.0
    return Row("bound", least, bound.bound_received_total, peak, seconds, "", model)


@lru_cache(maxsize=8)  # each call starts a JAX process, and commands repeat calls
def xla_plan(reshard: Reshard) -> XlaCollectives | str:
    """Return the collectives that XLA compiles for the reshard, or the reason why there are none.

    The compiled program is the identity, with an argument in the source sharding and a result in
    the target sharding.
    """
    reason = why_not_xla(reshard)
    if reason:
        return reason
    job = _job(reshard)
    devices = 1 + max(reshard.source.mesh.device_ids)
    flag = f"--xla_force_host_platform_device_count={devices}"
    env = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flag}
    # `-P`: no file of `cwd` shadows a module of the same name, such as `copy` or `types`.
    worker = "from shardwright.codegen.moves.xla import main; main()"
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", worker],
            input=json.dumps(job),
            capture_output=True,
            encoding="utf-8",
            env=env,
            timeout=XLA_SECONDS,
            cwd=Path(__file__).parent,
        )
    except subprocess.TimeoutExpired:
        return f"not compiled within {XLA_SECONDS} seconds"
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["no message"]
        return f"XLA: {said[-1][:120]}"
    return XlaCollectives.from_json(done.stdout.splitlines()[-1])


def _job(reshard: Reshard) -> dict[str, object]:
    return Description.of(reshard, "compared").to_dict()


def why_not_xla(reshard: Reshard) -> str | None:
    """Return the reason why XLA cannot compile a reshard, or None if it can."""
    if importlib.util.find_spec("jax") is None:
        return "jax is not installed"
    sides = (reshard.source, reshard.target)
    if list(reshard.source.mesh.device_ids) != list(reshard.target.mesh.device_ids):
        return "jax requires one order of devices before and after"
    if reshard.source.mesh.size > MOST_XLA_DEVICES:
        return f"not compiled for more than {MOST_XLA_DEVICES} devices"
    if reshard.source.unreduced or reshard.target.unreduced:
        return "an identity neither reduces nor creates terms"
    if any(extent % side.parts(dim) for side in sides for dim, extent in enumerate(reshard.shape)):
        return "jax requires dimensions that divide evenly"
    return None
