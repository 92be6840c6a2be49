"""How an emitted program is called: on meshes with types, and with arguments that it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import shardwright as sw

CALLS = """
import importlib.util, json, sys
import jax, jax.numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding

spec = importlib.util.spec_from_file_location("jax_spmd", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
explicit = jax.make_mesh((2, 2), ("d", "t"))
auto = jax.make_mesh((2, 2), ("d", "t"), axis_types=(AxisType.Auto,) * 2)
p = {"w": jnp.arange(32.0).reshape(8, 4)}
x = jnp.arange(128.0).reshape(16, 8)
want = ((x @ p["w"]) * 0.5)

def placed(mesh):
    return jax.tree.map(
        lambda leaf, spec: jax.device_put(leaf, NamedSharding(mesh, spec)),
        (p, x, 0.5), module.IN_SHARDINGS,
    )

def says(call, *args):
    try:
        return bool((call(*args) == want).all())
    except (AttributeError, ValueError) as error:
        return str(error)

on = module.program(explicit)
found = {
    "host": says(on, p, x, 0.5),
    "placed": says(on, *placed(explicit)),
    "placed elsewhere": says(on, *placed(auto)),
    "auto": says(module.program(auto), p, x, 0.5),
    "batch": says(on, p, x[:8], 0.5),
    "dtype": says(on, {"w": p["w"].astype(jnp.bfloat16)}, x, 0.5),
    "axes": says(module.program, Mesh(auto.devices, ("t", "d"))),
    "no mesh": says(module.program, "d=2,t=2"),
    "key": says(on, {"v": p["w"]}, x, 0.5),
    "keys": says(on, {**p, "b": p["w"]}, x, 0.5),
    "list": says(on, [p["w"]], x, 0.5),
    "None": says(on, None, x, 0.5),
    "array": says(on, p["w"], x, 0.5),
    "None in a dict": says(on, {"w": None}, x, 0.5),
    "two": says(on, p, [x, x], 0.5),
    "pad": says(lambda: module.pad),
    "padding": says(lambda: module.padding),
}
with jax.set_mesh(explicit):
    found["in a jit"] = says(jax.jit(lambda p, x: on(p, x, 0.5) + 0), p, x)
print(json.dumps(found))
"""


def step(p: dict[str, jax.Array], x: jax.Array, rate: jax.Array) -> jax.Array:
    return (x @ p["w"]) * rate


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bool | str]:
    folder = tmp_path_factory.mktemp("step")
    f32 = jnp.float32
    avals = {"w": jax.ShapeDtypeStruct((8, 4), f32)}, jax.ShapeDtypeStruct((16, 8), f32)
    program = sw.partition(
        step,
        *avals,
        jax.ShapeDtypeStruct((), f32),
        mesh=sw.Mesh({"d": 2, "t": 2}),
        in_shardings=(P(None, "t"), P("d"), P()),
    )
    sw.emit(program).write(folder)
    flags = "--xla_force_host_platform_device_count=4"
    done = subprocess.run(
        [sys.executable, "-c", CALLS, str(Path(folder, "jax_spmd.py"))],
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers: dict[str, bool | str] = json.loads(done.stdout)
    return answers


@pytest.mark.parametrize("how", ["host", "placed", "placed elsewhere", "auto", "in a jit"])
def test_arguments_come_from_anywhere(found: dict[str, bool | str], how: str) -> None:
    assert found[how] is True


AXES = ", expected a jax Mesh with the axes {'d': 2, 't': 2}"
KEYS = "expected 'w': rename the keys, or emit the program for these arguments"
REFUSED = {
    "batch": "x: got float32[8, 8], expected float32[16, 8]",
    "dtype": "p['w']: got bfloat16[8, 4], expected float32[8, 4]",
    "axes": "mesh: got {'t': 2, 'd': 2}" + AXES,
    "no mesh": "mesh: got a str" + AXES,
    "key": f"p: got the keys 'v', {KEYS}",
    "keys": f"p: got the keys 'b', 'w', {KEYS}",
    "list": "p: got a list, expected a dict with the keys 'w'",
    "None": "p: got None, expected a dict with the keys 'w'",
    "array": "p: got an array, expected a dict with the keys 'w'",
    "None in a dict": "p: got 0 arrays, expected 1",
    "two": "x: got 2 arrays, expected 1",
    "pad": "no pad: shards are equal, so call the program without it",
    "padding": "module 'jax_spmd' has no attribute 'padding'",
}


@pytest.mark.parametrize("how", REFUSED)
def test_others_than_it_was_emitted_for_are_refused(found: dict[str, bool | str], how: str) -> None:
    assert found[how] == REFUSED[how]


def test_parameters_with_names_that_the_module_uses() -> None:
    """`mesh`, `types` and others are names within `program`, too."""

    def named(mesh: Any, types: Any, leaves: Any, place: Any, f: Any) -> Any:
        return mesh @ types + leaves["tree"] * place - f

    x = jax.ShapeDtypeStruct((4, 4), jnp.float32)
    program = sw.partition(named, x, x, {"tree": x}, x, x, mesh="d=1", in_shardings='[{"d"}, {}]')
    module: dict[str, Any] = {}
    exec(sw.emit(program).module, module)
    one = jnp.ones((4, 4))
    run = module["program"](jax.make_mesh((1,), ("d",)))
    assert (run(one, one, {"tree": one}, one, one) == 4).all()
