"""Runs programs that are written as StableHLO, as a compiler that knows nothing of ours would, in a
process of its own: prints what differs from one device, and the collectives, as JSON. Arguments:
the names of the programs."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any

from cpu_devices import flags

os.environ["XLA_FLAGS"] = flags(8)
os.environ["JAX_PLATFORMS"] = "cpu"

import control_cases
import jax
import models
import numpy as np
from jax.extend.backend import get_backend
from jax.sharding import NamedSharding
from jaxlib import xla_client

import shardwright as sw
from shardwright.codegen.backends.jax_spmd.stablehlo import stablehlo_text
from shardwright.codegen.operations.verify.program_values import arguments, difference, in_float64
from shardwright.codegen.spec.hlo.collectives import received_in_all

COLLECTIVES = ("all_gather", "all_reduce", "reduce_scatter", "all_to_all", "collective_permute")


def cases() -> Any:
    models.B, models.S, models.D, models.H, models.F = 8, 16, 32, 8, 64
    step = "mlp_step:fsdp+tp"
    if step in sys.argv:
        yield (step, *models.case("mlp_step", "fsdp+tp"))
    for case in control_cases.cases():
        if case[0] in sys.argv:
            yield case


def whole(text: str, program: Any, names: dict[str, Any]) -> str:
    """The text of one device's program as a manual computation on whole arrays, which is what XLA
    takes."""
    mesh = ", ".join(f'"{axis}"={size}' for axis, size in program.local.axes.pieces)
    body = program.local.body
    sides = []
    for numbers, specs in ((body.arguments, "IN_SHARDINGS"), (body.results, "OUT_SHARDINGS")):
        values = [program.local.of(number) for number in numbers]
        dims = [program.local.values[number].layout.dims for number in numbers]
        listed = ", ".join(f"<@mesh, [{', '.join(map(braces, each))}]>" for each in dims)
        sides.append(([kind(value) for value in values], listed))
        assert len(leaves(names[specs])) == len(values)
    (inputs, taken), (outputs, made) = sides
    signature = re.search(r"func.func public @main\((.*?)\) -> (.*?) \{\n", text)
    assert signature
    locals_in = re.findall(r"tensor<[^>]*>", signature[1])
    locals_out = re.findall(r"tensor<[^>]*>", signature[2])
    a = [f"%a{n}" for n in range(len(inputs))]
    b = [f"%b{n}" for n in range(len(inputs))]
    r = [f"%r#{n}" for n in range(len(outputs))]
    y = [f"%y#{n}" for n in range(len(outputs))]
    axes = ", ".join(f'"{axis}"' for axis, _ in program.local.axes.pieces)
    main = f"""
  sdy.mesh @mesh = <[{mesh}]>
  func.func public @main({pairs(a, inputs)}) -> ({", ".join(outputs)}) {{
    %r:{len(r)} = sdy.manual_computation({", ".join(a)})
        in_shardings=[{taken}] out_shardings=[{made}]
        manual_axes={{{axes}}} ({pairs(b, locals_in)}) {{
      %y:{len(y)} = func.call @local({", ".join(b)}) : ({", ".join(locals_in)})
          -> ({", ".join(locals_out)})
      sdy.return {", ".join(y)} : {", ".join(locals_out)}
    }} : ({", ".join(inputs)}) -> ({", ".join(outputs)})
    return {", ".join(r)} : {", ".join(outputs)}
  }}
"""
    head, _, rest = text.partition("{\n")
    rest = rest.replace("func.func public @main", "func.func private @local", 1)
    return f"{head}{{{main}{rest}"


def braces(axes: Any) -> str:
    return "{" + ", ".join(f'"{axis}"' for axis in axes) + "}"


def pairs(names: list[str], kinds: list[str]) -> str:
    return ", ".join(f"{name}: {kind}" for name, kind in zip(names, kinds, strict=True))


def kind(value: Any) -> str:
    element = {"bool": "i1"}.get(value.dtype, value.dtype)
    return f"tensor<{'x'.join([*map(str, value.shape), element])}>"


def leaves(specs: Any) -> list[Any]:
    return jax.tree.leaves(specs, is_leaf=lambda x: isinstance(x, jax.sharding.PartitionSpec))


def compiled(text: str, devices: int) -> Any:
    """The executable of a text, one part a device."""
    options = xla_client.CompileOptions()
    options.num_partitions = devices
    options.num_replicas = 1
    options.executable_build_options.num_partitions = devices
    options.executable_build_options.use_spmd_partitioning = True
    options.executable_build_options.use_shardy_partitioner = True
    ids = np.arange(devices).reshape(1, devices)
    options.executable_build_options.device_assignment = xla_client.DeviceAssignment.create(ids)
    backend = get_backend("cpu")
    return backend.compile_and_load(text, backend.devices()[:devices], options)


def fault(fn: Any, avals: Any, executable: Any, names: dict[str, Any], mesh: Any) -> str:
    """What is wrong with what a text computes; the empty string if nothing is."""
    given = arguments(avals)
    one, exact = jax.tree.map(np.asarray, fn(*given)), in_float64(fn, given)

    def placed(specs: Any, values: Any) -> list[Any]:
        pairs = zip(jax.tree.leaves(values), leaves(specs), strict=True)
        return [jax.device_put(x, NamedSharding(mesh, spec)) for x, spec in pairs]

    shards = executable.execute_sharded(placed(names["IN_SHARDINGS"], given))
    found = shards.disassemble_into_single_device_arrays()
    wanted = [placed(names["OUT_SHARDINGS"], values) for values in (one, exact)]
    for number, (arrays, left, right) in enumerate(zip(found, *wanted, strict=True)):
        sides = [sorted(x.addressable_shards, key=lambda s: s.device.id) for x in (left, right)]
        for array, a, b in zip(arrays, *sides, strict=True):
            said = difference(np.asarray(a.data), np.asarray(b.data), np.asarray(array))
            if said:
                return f"result {number}: {said}"
    return ""


def main() -> None:
    found = {}
    for name, fn, avals, inputs, outputs, mesh in cases():
        program = sw.partition(fn, *avals, mesh=mesh, in_shardings=inputs, out_shardings=outputs)
        text = stablehlo_text(program)
        names: dict[str, Any] = {"__name__": "emitted"}
        exec(sw.emit(program).files("emitted")["jax_spmd.py"], names)
        executable = compiled(whole(text, program, names), mesh.size)
        hlo = executable.hlo_modules()[0].to_string()
        ops = re.findall(rf'"?stablehlo\.({"|".join(COLLECTIVES)})\b', text)
        found[name] = {
            "fault": fault(fn, avals, executable, names, mesh),
            "ops": [op.replace("collective_", "") for op in ops],
            "reported": [each.op for each in program.communications],
            "bytes": [program.bytes_received, max(received_in_all(hlo, mesh.size))],
            "dialects": sorted({*re.findall(r"\b([a-z_]+)\.[a-z_]+\b", text)}),
            "foreign": re.findall(r"custom_call|shardwright|jit_|sharding|jax", text),
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
