"""Seconds of communications on a topology, beside those of the collectives in the HLO."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from places import TESTS

import shardwright as sw

PROCESS = """\
import json, sys
import jax, numpy as np
import emitted, models
import shardwright as sw
from shardwright.codegen.hardware.presets import topology_of
from shardwright.codegen.moves.network.links import Network
from shardwright.codegen.moves.xla import collectives
from shardwright.codegen.moves.xla_cost import seconds_of

models.B, models.S, models.D, models.H, models.F = 8, 16, 32, 8, 64
found = []
for name in sys.argv[2:]:
    fn, avals, inputs, outputs, mesh = models.case(*name.split(":"))
    program = sw.partition(fn, *avals, mesh=mesh, in_shardings=inputs, out_shardings=outputs)
    text = emitted.module_of(program)["program"](mesh).lower(*avals).compile().as_text()
    network = Network(topology_of(sys.argv[1]), mesh.size)
    moves = collectives(text, mesh.size)
    read = [seconds_of([move], network, np.arange(mesh.size)) for move in moves]
    found.append([sum(program.seconds(sys.argv[1])), sum(read)])
print(json.dumps(found))
"""


HIERARCHY = "hierarchical:2x4,latency=1e-15,between_latency=1e-15"


@pytest.mark.parametrize("topology", ["torus:2x4,latency=1e-15", HIERARCHY])
def test_they_are_those_of_the_hlo(topology: str) -> None:
    """The HLO's collectives are priced by their groups of devices. XLA joins and cuts some: without
    latency that makes no difference."""
    names = ("mlp_step:fsdp+tp", "mlp:dp+tp+sp")
    env = {**os.environ, "PYTHONPATH": str(TESTS), "JAX_PLATFORMS": "cpu"}
    env["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    command = [sys.executable, "-c", PROCESS, topology, *names]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    for ours, read in json.loads(done.stdout.splitlines()[-1]):
        assert ours == pytest.approx(read)


def partitioned(given: str, wanted: str, mesh: str = "a=2,b=4") -> sw.Partitioned:
    """The identity of a vector of 4096 floats, from one sharding to another."""
    import jax
    import jax.numpy as jnp

    return sw.partition(
        lambda x: x + 0,
        jax.ShapeDtypeStruct((4096,), jnp.float32),
        mesh=sw.Mesh.parse(mesh),
        in_shardings=given,
        out_shardings=wanted,
    )


FABRIC = "switch:8,bandwidth=1e9,latency=1e-6"


def test_of_a_gather_and_a_permutation() -> None:
    """By hand on a switch: 512 floats from each of the others in doublings; all at once."""
    (gather,) = partitioned('[{"a", "b"}]', "[{}]").seconds(FABRIC)
    assert gather == pytest.approx(3e-6 + 7 * 2048 / 1e9)
    (permute,) = partitioned('[{"a", "b"}]', '[{"b", "a"}]').seconds(FABRIC)
    assert permute == pytest.approx(1e-6 + 2048 / 1e9)
    assert partitioned("[{}]", '[{"a"}]').seconds(FABRIC) == ()


def test_what_cannot_be_priced() -> None:
    program = partitioned('[{"a", "b"}]', "[{}]")
    with pytest.raises(sw.InputError) as error:
        program.seconds("switch:4")
    assert str(error.value) == (
        "topology: the topology must have every device of the meshes\n"
        "got: switch:4: devices 0 to 3\n"
        "expected: a topology of at least 8 devices, for device 7"
    )
