"""Reshards by Shardy's passes and by XLA, priced by the same model as our plans.

Each peer runs in a separate process, because Shardy's pass may abort its process, and XLA's number
of devices is fixed when a process starts. Shardy's sequence is made by `sdy-reshard-to-collectives`
in jaxlib, and simplified by the canonical patterns of its collectives. XLA's sequence consists of
the collectives of the compiled identity.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from importlib import metadata
from typing import Any

import shardwright as sw
from shardwright.codegen.moves.basis.bound import Estimates
from shardwright.codegen.moves.basis.digits import Digits
from shardwright.codegen.moves.basis.graph import Basis, product_of, state_of
from shardwright.codegen.moves.basis.permutes import Permutes
from shardwright.codegen.moves.network.links import Network
from shardwright.codegen.moves.plan import network_of
from shardwright.codegen.moves.xla import XlaCollectives
from shardwright.codegen.moves.xla_cost import seconds_of
from shardwright.codegen.spec.description import Description
from shardwright.ir import AxisRef, Mesh
from shardwright.ir.exchange import ids_of

PASSES = ("func.func(sdy-reshard-to-collectives)", "canonicalize{enable-patterns=sdy-collective}")
_STEP = re.compile(r"sdy\.(\w+) (.*?)%\w+ out_sharding=<@mesh, (\[.*\])> :")
_AXIS = re.compile(r'"([^"]+)"(?::\((\d+)\)(\d+))?')


@dataclass(frozen=True)
class PeerStep:
    """A step of a peer: its name, its axes, and the sharding after it."""

    op: str
    axes: str
    after: str


def versions() -> str:
    """Return a sentence with the date and the versions of the packages."""
    names = ("jax", "jaxlib", "numpy")
    found = ", ".join(f"{name} {metadata.version(name)}" for name in names)
    return f"Made on {date.today().isoformat()} with {found}."


def by_shardy(reshards: Sequence[sw.Reshard]) -> list[tuple[PeerStep, ...] | None]:
    """Return the steps of Shardy's pass for each reshard, or None if the pass makes a malformed op
    or steps that lead to a different sharding."""
    asked = [[str(r.source.mesh), r.shape, str(r.source), str(r.target)] for r in reshards]
    lines = _answers(["-m", "bench.peers"], [json.dumps(each) for each in asked])
    return [_led(r, json.loads(line)) for r, line in zip(reshards, lines, strict=True)]


def _led(reshard: sw.Reshard, answer: list[list[str]] | None) -> tuple[PeerStep, ...] | None:
    if answer is None:
        return None
    steps, last = tuple(PeerStep(*step) for step in answer), reshard.source
    if steps:
        last = reshard.source.mesh.sharding(steps[-1].after)
    return steps if state_of(last, 0) == state_of(reshard.target, 0) else None


def by_xla(reshards: Sequence[sw.Reshard]) -> list[XlaCollectives]:
    """Return, for each reshard, the collectives of the identity between its shardings as XLA
    compiles it."""
    worker = "from shardwright.codegen.moves.xla import main; main()"
    lines = [json.dumps(Description.of(r, "asked").to_dict()) for r in reshards]
    devices = max(r.source.mesh.size for r in reshards)
    flag = f"--xla_force_host_platform_device_count={devices}"
    found = _answers(["-c", worker], lines, JAX_PLATFORMS="cpu", XLA_FLAGS=flag)
    return [XlaCollectives.from_json(line) for line in found]


def shardy_seconds(reshard: sw.Reshard, steps: Sequence[PeerStep], topology: str) -> float:
    """Return the seconds of Shardy's steps, each priced as a step of the basis."""
    basis = Basis(reshard)
    estimates = Estimates(basis, network_of(reshard, topology))
    permutes, mesh = Permutes(basis, estimates), reshard.source.mesh
    state, total = basis.start, 0.0
    for step in steps:
        after = state_of(mesh.sharding(step.after), 0)
        if step.op == "collective_permute":
            total += float(permutes.seconds(state, permutes.choice([after]).receivers)[0])
        elif step.op != "all_slice":
            digits = tuple(sorted(_digits(mesh, step.axes), reverse=True))
            total += estimates.price(step.op, 0, digits, product_of(state))
        state = after
    if state != basis.goal:
        raise AssertionError(f"Shardy ends at {state}, not at {basis.goal}")
    return total


def xla_seconds(reshard: sw.Reshard, found: XlaCollectives, network: Network) -> float:
    """Return the seconds of the collectives of XLA's own plan. Passes over memory are left out, as
    in the predictions for our plans and for Shardy's steps."""
    return seconds_of(found.moves, network, ids_of(reshard.source.mesh))


def _digits(mesh: Mesh, text: str) -> Digits:
    refs = (
        AxisRef(name, int(pre), int(size)) if pre else AxisRef(name)
        for name, pre, size in _AXIS.findall(text)
    )
    return tuple((digit.stride, digit.size) for digit in map(mesh.digit, refs))


def _answers(words: list[str], lines: Sequence[str], **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, *words],
        input="\n".join(lines) + "\n",
        text=True,
        check=False,
        capture_output=True,
        env=os.environ | environment,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return done.stdout.splitlines()


def _steps(context: Any, mesh: str, shape: list[int], source: str, target: str) -> Any:
    """Return the steps that the pass makes, as (op, axes, sharding after it), or None if it
    fails."""
    from jaxlib.mlir import ir
    from jaxlib.mlir.passmanager import PassManager

    tensor = f"tensor<{''.join(f'{extent}x' for extent in shape)}f32>"
    text = f"""
      sdy.mesh @mesh = {mesh}
      func.func @main(%a: {tensor} {{sdy.sharding = #sdy.sharding<@mesh, {source}>}}) -> {tensor} {{
        %0 = sdy.reshard %a <@mesh, {target}> : {tensor}
        return %0 : {tensor}
      }}"""
    with context, ir.Location.unknown():
        module = ir.Module.parse(text)
        try:
            for one in PASSES:
                PassManager.parse(f"builtin.module({one})").run(module.operation)
        except ir.MLIRError:
            return None
    steps = []
    for line in str(module).splitlines():
        if " = sdy." not in line or "sdy.mesh" in line:
            continue
        match = _STEP.search(line)
        if match is None:
            raise ValueError(f"got an unknown op from Shardy's pass: {line.strip()}")
        steps.append(match.groups())
    return steps


def serve() -> None:
    """Print the steps of Shardy's pass, as one line of JSON for each line with a reshard."""
    from jax._src.interpreters import mlir

    context = mlir.make_ir_context()
    for line in sys.stdin:
        print(json.dumps(_steps(context, *json.loads(line))), flush=True)


if __name__ == "__main__":
    serve()
