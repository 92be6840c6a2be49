"""Runs emitted programs beside one device, in a process of its own: prints what differs as JSON.

python tests/emitted_process.py models mlp_step:fsdp+tp …
python tests/emitted_process.py random plain 0 10 2,2,4
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import os
import random
import sys
from typing import Any

from cpu_devices import flags

os.environ["XLA_FLAGS"] = flags(16)
os.environ["JAX_PLATFORMS"] = "cpu"

import control_cases
import emitted
import gpt2
import jax
import jax.numpy as jnp
import models
import more_models
import numpy as np
import program_patterns
import random_calls
import random_functions
import random_layers
import random_uneven
import record_trees

import shardwright as sw
from shardwright.codegen.partition import planned as planning
from shardwright.codegen.partition.local.end_values import PaddedBody
from shardwright.codegen.partition.local.steps import moves_of

if "bytes" not in sys.argv[1:2]:  # code need not be fast, but compiled soon
    jax.config.update("jax_disable_most_optimizations", True)

SWEPT = ("2x2", "2x4", "2x2x2", "1")
"""Meshes of the sweep over random functions."""
CHIPS = "v5e:4x4"
"""What one in three random functions is planned for."""


def of_models(mode: str, *names: str) -> dict[str, str]:
    """Models in their strategies, made small: `mlp_step:tp`, or on one device `mlp_step:tp:1`."""
    models.B, models.S, models.D, models.H, models.F = 8, 16, 32, 8, 64
    found = {}
    for name in names:
        model, strategy, *alone = name.split(":")
        whole = models.MESHES[strategy]
        if alone:  # on one device
            models.MESHES[strategy] = dict.fromkeys(whole, 1)
        fn, avals, inputs, outputs, mesh = models.case(model, strategy)
        models.MESHES[strategy] = whole
        program = sw.partition(
            fn, *avals, mesh=mesh, in_shardings=inputs, out_shardings=outputs, mode=mode
        )
        found[name] = emitted.fault(fn, avals, program, mesh)
    return found


def of_layers(mode: str, layers: str, *strategies: str) -> dict[str, str]:
    """Training steps of models of so many layers, made small, whose layers are functions."""
    models.D, models.H, models.F = 32, 8, 64
    gpt2.VOCABULARY, gpt2.BATCH, gpt2.LENGTH, gpt2.WIDTH = 64, 8, 8, 32
    found = {}
    for strategy in strategies:
        fn, avals, inputs, outputs, mesh = gpt2.case(strategy, int(layers))
        program = sw.partition(
            fn, *avals, mesh=mesh, in_shardings=inputs, out_shardings=outputs, mode=mode
        )
        folded = "" if program.local.functions else "no function"
        found[strategy] = folded or emitted.fault(fn, avals, program, mesh)
    return found


def of_more(mode: str) -> dict[str, str]:
    """Convolutions, experts, dropout, a cache; loops and branches."""
    found = {}
    every = [(*case[:4], None, case[4]) for case in more_models.cases()]
    for pattern in program_patterns.patterns():
        small = tuple(
            jax.ShapeDtypeStruct(tuple(min(n, 64) for n in aval.shape), aval.dtype)
            for aval in pattern.avals
        )
        of_jax = models.jax_mesh(**pattern.mesh.sizes)
        sides = (pattern.inputs, pattern.output)
        every.append((pattern.name, pattern.fn, small, *sides, of_jax))
    every += [case for case in control_cases.cases() if "manual" not in case[0]]
    for name, fn, avals, inputs, outputs, mesh in every:
        try:
            program = sw.partition(
                fn, *avals, mesh=mesh, in_shardings=inputs, out_shardings=outputs, mode=mode
            )
            found[name] = emitted.fault(fn, avals, program, mesh)
        except sw.InputError as error:
            found[name] = str(error)
    return found


def of_joined() -> dict[str, str]:
    """What is joined along a dimension, or padded, and then split along that one: as many parts
    as devices, of which XLA may take one as it lies in memory."""
    mesh = sw.Mesh({"x": 2})
    avals = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((8, 8, 4), (4, 8, 8))]
    sides = {
        "in_shardings": (mesh.sharding('[{}, {"x"}, {}]'), mesh.sharding('[{}, {"x"}, {}]')),
        "out_shardings": (mesh.sharding('[{}, {"x"}, {}]'), mesh.sharding('[{"x"}, {}, {}]')),
    }
    joined = {
        "concatenate": lambda a, b: jnp.concatenate((a + 1, b.transpose(2, 1, 0)), axis=0),
        "pad": lambda a, b: jnp.pad(b.transpose(2, 1, 0), ((8, 0), (0, 0), (0, 0))),
        "update": lambda a, b: jax.lax.dynamic_update_slice(
            jnp.zeros((16, 8, 4)), b.transpose(2, 1, 0), (8, 0, 0)
        ),
    }
    found = {}
    for name, mode in itertools.product(joined, ("cheapest", "as_shardy")):
        fn = functools.partial(_twice, joined[name])
        program = sw.partition(fn, *avals, mesh=mesh, mode=mode, **sides)
        assert [each.op for each in program.communications] == ["all_to_all"], name
        found[f"{name} {mode}"] = emitted.fault(fn, avals, program, models.jax_mesh(x=2))
    return found


def _twice(fn: Any, *arguments: Any) -> Any:
    result = fn(*arguments)
    return result, result


def of_random(mode: str, kind: str, first: str, last: str, mesh: str) -> dict[str, str]:
    """Random functions with random shardings, or their gradients, on a mesh a, b, … of these
    sizes."""
    sizes = tuple(map(int, mesh.split("x")))
    names = tuple("abc"[: len(sizes)])
    own = sw.Mesh(dict(zip(names, sizes, strict=True)))
    of_jax = models.jax_mesh(**own.sizes)
    found = {}
    for seed in range(int(first), int(last)):
        fn, avals, sides = _random_function(seed, kind, own)
        topology = CHIPS if seed % 3 == 2 else None
        program = sw.partition(fn, *avals, mesh=own, mode=mode, topology=topology, **sides)
        text = sw.emit(program).module
        if (fn, text) not in _COMPARED:  # another mode may have made the same
            given = fn, avals, program, of_jax
            if "outside" in kind:  # the gradient that jax makes of the module
                _COMPARED[fn, text] = emitted.fault_of_gradient(gradient_of, *given)
            else:
                _COMPARED[fn, text] = emitted.fault(*given)
        found[str(seed)] = _COMPARED[fn, text]
    return found


_COMPARED: dict[tuple[Any, str], str] = {}
"""What is wrong with modules of functions."""


@functools.lru_cache(maxsize=4)
def _random_function(seed: int, kind: str, mesh: sw.Mesh) -> tuple[Any, Any, dict[str, Any]]:
    """A random function, its avals, and its shardings; jitted, so that one device compiles it
    once."""
    formed = 6 if "formed" in kind else 0
    made: Any
    if "uneven" in kind or "edges" in kind:
        made = random_uneven.case(seed, mesh, edges="edges" in kind)
    elif "layered" in kind:
        made = random_layers.case(seed, mesh)
    elif "calls" in kind:
        made = random_calls.case(seed, mesh)
    else:
        made = random_functions.case(seed, "rich" in kind, meshes=(mesh,), formed=formed)
    fn, outputs = made, made.outputs
    if "gradient" in kind:
        fn, outputs = gradient_of(made), ((None, None), made.inputs)
    if "both" in kind:
        fn, outputs = gradient_of(made), ((None, made.outputs), made.inputs)
    return jax.jit(fn), made.avals, {"in_shardings": made.inputs, "out_shardings": outputs}


def of_sweep(first: str, last: str) -> dict[str, str]:
    """Random functions and their gradients, each in one mode on one mesh."""
    found = {}
    for seed in range(int(first), int(last)):
        mode = ("cheapest", "as_shardy")[seed % 2]
        mesh = SWEPT[seed // 2 % len(SWEPT)]
        kind = ("rich gradient", "rich")[seed // 8 % 4 == 3]
        made = of_random(mode, kind, str(seed), str(seed + 1), mesh)
        found |= {f"{mode} {kind} {seed} {mesh}": said for said in made.values()}
    return found


def of_product(first: str, last: str) -> dict[str, str]:
    """Random functions, what they give and their gradients, on every mesh of the sweep in both
    modes. Machine code is optimized for one in four."""
    found = {}
    seeds = range(int(first), int(last))
    for seed, mesh, mode in itertools.product(seeds, SWEPT, ("cheapest", "as_shardy")):
        jax.config.update("jax_disable_most_optimizations", seed // 4 % 4 > 0)
        made = of_random(mode, "rich both", str(seed), str(seed + 1), mesh)
        found |= {f"{mode} {seed} {mesh}": said for said in made.values()}
    return found


def of_formed(first: str, last: str) -> dict[str, str]:
    """Gradients of random functions with local forms, each in one mode on one mesh."""
    found = {}
    for seed in range(int(first), int(last)):
        mode, mesh = ("cheapest", "as_shardy")[seed % 2], ("2x4", "4", "2x2x2")[seed // 2 % 3]
        made = of_random(mode, "formed gradient", str(seed), str(seed + 1), mesh)
        found |= {f"{mode} formed {seed} {mesh}": said for said in made.values()}
    return found


def of_layered(first: str, last: str) -> dict[str, str]:
    """Random layers, applied several times, each with its gradients in one mode on one mesh."""
    found = {}
    for seed in range(int(first), int(last)):
        mode, mesh = ("cheapest", "as_shardy")[seed % 2], ("2x4", "4", "2x2x2")[seed // 2 % 3]
        kind = ("layered both", "layered outside")[seed // 6 % 2]
        made = of_random(mode, kind, str(seed), str(seed + 1), mesh)
        found |= {f"{mode} {kind} {seed} {mesh}": said for said in made.values()}
    return found


def of_calls(first: str, last: str) -> dict[str, str]:
    """Random calls of the user's functions, most with their gradients, each in one mode on one
    mesh."""
    found = {}
    for seed in range(int(first), int(last)):
        mode, mesh = ("cheapest", "as_shardy")[seed % 2], ("2x4", "4", "2x2x2", "1")[seed // 2 % 4]
        kind = ("calls both", "calls", "calls outside")[seed // 8 % 3]
        made = of_random(mode, kind, str(seed), str(seed + 1), mesh)
        found |= {f"{mode} {kind} {seed} {mesh}": said for said in made.values()}
    return found


def of_uneven(first: str, last: str) -> dict[str, str]:
    """Random functions of values whose extents do not divide, their results and gradients, each in
    one mode on one mesh; for one in four the gradient that JAX makes of the module. All ends are
    padded, also where it would be cheaper to gather them."""
    planning.in_order = lambda plans: plans
    found = {}
    for seed in range(int(first), int(last)):
        mode, mesh = ("cheapest", "as_shardy")[seed % 2], ("2x2", "2x4", "3x2", "8")[seed // 2 % 4]
        kind = "uneven outside" if seed // 8 % 4 == 3 else "uneven both"
        made = of_random(mode, kind, str(seed), str(seed + 1), mesh)
        found |= {f"{mode} {kind} {seed} {mesh}": said for said in made.values()}
    return found


def of_edges(first: str, last: str) -> dict[str, str]:
    """Random functions of arguments and results whose extents do not divide, as in `of_uneven`; for
    half of them, ends inside the function are padded only where that costs less."""
    own = planning.in_order
    found = {}
    for seed in range(int(first), int(last)):
        mode, mesh = ("cheapest", "as_shardy")[seed % 2], ("2x2", "2x4", "3x2", "8")[seed // 2 % 4]
        planning.in_order = own if seed // 16 % 2 else lambda plans: plans
        kind = ("edges both", "edges", "edges both", "edges outside")[seed // 8 % 4]
        made = of_random(mode, kind, str(seed), str(seed + 1), mesh)
        found |= {f"{mode} {kind} {seed} {mesh}": said for said in made.values()}
    return found


def of_poisoned(first: str, last: str) -> dict[str, str]:
    """The same functions with NaN in every padded row of a result. An op that reads one, or a
    gradient that adds one up, is NaN."""
    own = PaddedBody.results
    PaddedBody.unread = math.nan
    PaddedBody.results = lambda body, op, ends, _: own(body, op, ends, True)
    return of_uneven(first, last)


def gradient_of(fn: Any) -> Any:
    """A step: the mean of what a function gives, what it gives, and the gradient by every
    argument."""

    def step(*arguments: Any) -> Any:
        def mean(arguments: Any) -> Any:
            results = fn(*arguments)
            return sum(jnp.tanh(result).mean() for result in results), results

        return jax.value_and_grad(mean, has_aux=True)(arguments)

    return step


def _with_every_axis(rng: random.Random, mesh: sw.Mesh, rank: int) -> sw.Sharding:
    """A sharding that uses every axis, in a random order."""
    dims: list[list[str]] = [[] for _ in range(rank)]
    for name in rng.sample(mesh.names, len(mesh.names)):
        rng.choice(dims).append(f'"{name}"')
    return mesh.sharding(f"[{', '.join('{' + ', '.join(dim) + '}' for dim in dims)}]")


def of_reshards(first: str, last: str) -> dict[str, str]:
    """Tensors of different integers from one random sharding to another: what each device holds,
    bitwise, and what it receives."""
    own = sw.Mesh({"a": 2, "b": 2, "c": 4})
    of_jax = models.jax_mesh(**own.sizes)
    found = {}
    for seed in range(int(first), int(last)):
        rng = random.Random(seed)
        shape = tuple(rng.choice((16, 32)) for _ in range(rng.randint(2, 3)))
        source, target = (_with_every_axis(rng, own, len(shape)) for _ in range(2))
        if seed % 2:
            target = random_functions.random_sharding(rng, shape, False)
        aval = jax.ShapeDtypeStruct(shape, jnp.int32)
        sides = {"in_shardings": (source,), "out_shardings": target}
        program = sw.partition(lambda x: x, aval, mesh=own, **sides)
        numbers = jnp.arange(aval.size, dtype=jnp.int32).reshape(shape)
        made = emitted.module_of(program)["program"](of_jax)
        shards = made(numbers).addressable_shards
        right = all((np.asarray(each.data) == numbers[each.index]).all() for each in shards)
        said, read = program.bytes_received, emitted.received((aval,), program, of_jax)
        moves = (step.change for step, _ in moves_of(program.local))
        kinds = {f"{each.op} by {each.collective} of {len(each.dims)}" for each in moves}
        name = f"{seed} {', '.join(sorted(kinds))}"
        found[name] = "" if right and said == read else f"{right} {said} {read}"
    return found


def of_records(mode: str, *layers: str) -> dict[str, str]:
    """Steps on trees of a NamedTuple, a dataclass and a class of its own."""
    mesh = sw.Mesh({"d": 4, "t": 2})
    found = {}
    for count in map(int, layers):
        avals, given = record_trees.arguments(count), record_trees.shardings(count)
        sides = {"in_shardings": given, "out_shardings": given}
        program = sw.partition(record_trees.step, *avals, mesh=mesh, mode=mode, **sides)
        said = emitted.fault(record_trees.step, avals, program, models.jax_mesh(**mesh.sizes))
        folded = bool(program.local.functions)
        found[f"{count} {'folded' if folded else 'plain'}"] = said
    return found


def of_bytes(mode: str, *names: str) -> dict[str, str]:
    """Models at their full size: whether the HLO receives what is reported, or a thousandth less:
    XLA gathers but once what a function computes twice, such as a mask."""
    found = {}
    for name in names:
        model, _, strategy = name.partition(":")
        fn, avals, inputs, outputs, mesh = models.case(model, strategy)
        program = sw.partition(
            fn, *avals, mesh=mesh, in_shardings=inputs, out_shardings=outputs, mode=mode
        )
        said, read = program.bytes_received, emitted.received(avals, program, mesh)
        is_right = read <= said <= read + read // 1000
        found[name] = "" if is_right else f"reported {said}, in HLO {read}"
    return found


def of_faults() -> dict[str, str]:
    """Which checks see a fault that is planted in an emitted module."""
    models.B, models.S, models.D, models.H, models.F = 8, 16, 32, 8, 64
    fn, avals, inputs, outputs, mesh = models.case("mlp_step", "fsdp+tp")
    program = sw.partition(fn, *avals, mesh=mesh, in_shardings=inputs, out_shardings=outputs)
    return {
        name: emitted.caught(fn, avals, program, mesh, plant)
        for name, plant in emitted.FAULTS.items()
    }


RUNS: dict[str, Any] = {
    "models": of_models,
    "layers": of_layers,
    "more": of_more,
    "joined": of_joined,
    "random": of_random,
    "sweep": of_sweep,
    "product": of_product,
    "records": of_records,
    "reshards": of_reshards,
    "formed": of_formed,
    "layered": of_layered,
    "calls": of_calls,
    "uneven": of_uneven,
    "edges": of_edges,
    "poisoned": of_poisoned,
    "bytes": of_bytes,
    "faults": of_faults,
}

if __name__ == "__main__":
    print(json.dumps(RUNS[sys.argv[1]](*sys.argv[2:])))
