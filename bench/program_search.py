"""The quality of the search of `cheapest`, compared with remedies and constraints, and its time for
many layers.

The first table has the cost of small programs, its ratio to a lower bound, and its ratio to the
least cost of any equivalent program. These have a batch constraint after every layer, or a remedy
for one of the largest communications that constrains a value. Remedies that change the sharding of
an argument or a result are left out, because they change the request. No equivalent program should
cost less by more than 5 %.

The second table has training steps like LLaMA's, each in a separate process, with the CPU seconds
to trace and to partition them.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import shardwright as sw

TESTS = Path(__file__).resolve().parent.parent / "tests"
LINE = "from bench.program_search import measured; measured(%r, %d, %r)"
VOCABULARY, WIDTH, HEADS, INNER, LENGTH, ROWS = 32768, 4096, 64, 14336, 4096, 1024
LARGEST = 6
"""The number of a program's largest communications whose remedies are tried."""
LLAMAS = tuple(
    (way, layers, mesh)
    for layers in (32, 96)
    for way in ("scanned", "unrolled")
    for mesh in ("16x16", "4x16x16", "64x64")
)
Mark = Callable[[Any], Any]


class Asked(NamedTuple):
    """A program to partition: the arguments of `sw.partition`."""

    fn: Callable[..., Any]
    avals: tuple[Any, ...]
    given: dict[str, Any]

    def partitioned(self) -> sw.Partitioned:
        return sw.partition(self.fn, *self.avals, mode="cheapest", **self.given)


def unmarked(x: Any) -> Any:
    return x


def tied(layers: int, mark: Mark) -> Asked:
    """Return a training step of layers between an embedding and a head that share their weights;
    `mark` is applied to the result of every layer."""
    import jax
    import jax.numpy as jnp

    weights = {
        "tokens": ((2048, 256), '[{"t"}, {"d"}]'),
        "up": ((256, 1024), '[{"d"}, {"t"}]'),
        "down": ((1024, 256), '[{"t"}, {"d"}]'),
    }

    def loss(p: Any, ids: Any) -> Any:
        x = mark(p["tokens"][ids])
        for _ in range(layers):
            x = mark(x + jnp.tanh(x @ p["up"]) @ p["down"])
        scores = jax.nn.log_softmax(x @ p["tokens"].T)
        return -jnp.take_along_axis(scores, ids[..., None], -1).mean()

    given = {name: sharding for name, (_, sharding) in weights.items()}
    avals = {name: jax.ShapeDtypeStruct(shape, "float32") for name, (shape, _) in weights.items()}
    sides = {"in_shardings": (given, '[{"d"}, {}]'), "out_shardings": given}
    ids = jax.ShapeDtypeStruct((64, 128), "int32")
    return Asked(_step(loss), (avals, ids), {"mesh": sw.Mesh({"d": 4, "t": 2}), **sides})


def _step(loss: Callable[..., Any]) -> Callable[..., Any]:
    import jax

    def step(p: Any, *given: Any) -> Any:
        gradient = jax.grad(loss)(p, *given)
        return jax.tree.map(lambda w, g: w - 0.01 * g, p, gradient)

    return step


def llama(way: str, layers: int, sizes: str, mark: Mark) -> Asked:
    """Return a training step of a model like LLaMA, with FSDP and tensor parallelism. `way`:
    whether layers are `unrolled`, or `scanned` with each layer recomputed in the backward pass;
    `mark` is applied to the result of every layer."""
    import jax
    import jax.numpy as jnp

    extents = list(map(int, sizes.split("x")))
    mesh = sw.Mesh(dict(zip(("p", "d", "t")[-len(extents) :], extents, strict=True)))
    rows = ", ".join(f'"{name}"' for name in mesh.names[:-1])
    d, t, none = '"d"', '"t"', ""
    shapes = {
        **dict.fromkeys(("q", "k", "v"), ((WIDTH, HEADS, WIDTH // HEADS), (d, t, none))),
        "o": ((HEADS, WIDTH // HEADS, WIDTH), (t, none, d)),
        **dict.fromkeys(("gate", "up"), ((WIDTH, INNER), (d, t))),
        "down": ((INNER, WIDTH), (t, d)),
        **dict.fromkeys(("before", "after"), ((WIDTH,), (none,))),
    }

    def normed(x: Any, gain: Any) -> Any:
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * gain

    def layer(x: Any, p: Any) -> Any:
        h = normed(x, p["before"])
        q, k, v = (jnp.einsum("bsd,dhk->bshk", h, p[name]) for name in "qkv")
        scores = jnp.einsum("bshk,bthk->bhst", q, k) / q.shape[-1] ** 0.5
        mixed = jnp.einsum("bhst,bthk->bshk", jax.nn.softmax(scores), v)
        x = x + jnp.einsum("bshk,hkd->bsd", mixed, p["o"])
        h = normed(x, p["after"])
        return mark(x + (jax.nn.silu(h @ p["gate"]) * (h @ p["up"])) @ p["down"])

    def loss(p: Any, ids: Any) -> Any:
        x = mark(p["tokens"][ids])
        if way == "scanned":
            x, _ = jax.lax.scan(lambda x, w: (jax.checkpoint(layer)(x, w), None), x, p["layers"])
        for w in p["layers"] if way == "unrolled" else ():
            x = layer(x, w)
        scores = jax.nn.log_softmax(normed(x, p["gain"]) @ p["head"])
        return -jnp.take_along_axis(scores, ids[..., None], -1).mean()

    def aval(*shape: int) -> Any:
        return jax.ShapeDtypeStruct(shape, "bfloat16")

    def text(*entries: str) -> str:
        return f"[{', '.join(f'{{{entry}}}' for entry in entries)}]"

    if way == "scanned":
        weights: Any = {name: aval(layers, *shape) for name, (shape, _) in shapes.items()}
        given: Any = {name: text(none, *entries) for name, (_, entries) in shapes.items()}
    else:
        weights = [{name: aval(*shape) for name, (shape, _) in shapes.items()}] * layers
        given = [{name: text(*entries) for name, (_, entries) in shapes.items()}] * layers
    p = {"tokens": aval(VOCABULARY, WIDTH), "head": aval(WIDTH, VOCABULARY), "gain": aval(WIDTH)}
    sides = {"tokens": text(t, d), "head": text(d, t), "gain": text(none), "layers": given}
    ids = jax.ShapeDtypeStruct((ROWS, LENGTH), "int32")
    return Asked(
        _step(loss),
        ({**p, "layers": weights}, ids),
        {"mesh": mesh, "in_shardings": (sides, f"[{{{rows}}}, {{}}]"), "out_shardings": sides},
    )


def layers_of(strategy: str, mark: Mark) -> Asked:
    """Return a training step of a transformer layer, sharded by one of the strategies of
    `tests/models.py`; `mark` is applied to the layer's argument and result."""
    import models

    models.jax_mesh = _mesh
    layer = models.layer
    models.layer = lambda p, x, own=models.unmarked: mark(layer(p, mark(x), own))
    try:
        fn, avals, inputs, outputs, mesh = models.case("layer_step", strategy)
    finally:
        models.layer = layer
    return Asked(fn, avals, {"mesh": mesh, "in_shardings": inputs, "out_shardings": outputs})


def measured(way: str, layers: int, sizes: str) -> None:
    """Print measurements of a step like LLaMA's as JSON: the number of its values; the CPU seconds
    to trace, to partition and to price it; the received bytes, the cost, and the lower bound."""
    asked = llama(way, layers, sizes, unmarked)
    times = [time.process_time()]
    program = asked.partitioned()
    times.append(time.process_time())
    program.local  # noqa: B018
    times.append(time.process_time())
    figures = program.bytes_received, program.cost, program.lower_bound
    times.append(time.process_time())
    seconds = [round(after - before, 2) for before, after in itertools.pairwise(times)]
    print(json.dumps([len(program.given.values), *seconds, *figures]))


def _mesh(**axes: int) -> Any:
    import jax

    kinds = (jax.sharding.AxisType.Auto,) * len(axes)
    return jax.sharding.AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=kinds)


def programs() -> Iterator[tuple[str, Callable[[Mark], Asked], str]]:
    """Yield the name of each program, a function that returns it with a mark after every layer, and
    the axis that splits its batch."""
    import models

    for layers in (1, 2, 4):
        yield f"tied embedding, {layers} layers", partial(tied, layers), "d"
    for strategy, axes in models.MESHES.items():
        yield f"layer_step {strategy}", partial(layers_of, strategy), next(iter(axes))
    for way in ("scanned", "unrolled"):
        for sizes in ("4x2", "2x2x2", "2x4"):
            yield f"LLaMA, 4 layers, {way}, {sizes}", partial(llama, way, 4, sizes), "d"


def beside(program: sw.Partitioned) -> Iterator[tuple[str, sw.Partitioned]]:
    """Yield each remedy of the largest communications that leaves the shardings of arguments and
    results unchanged, with the program to which it is applied."""
    from shardwright.codegen.partition.remedied import remedied
    from shardwright.ir.errors import InputError

    inputs = program.given.body.arguments
    seen = set()
    largest = sorted(program.communications, key=lambda each: -each.bytes)[:LARGEST]
    for each in largest:
        for found in remedied(program.given, program.local, each.number):
            same = found.given.results == program.given.results and all(
                found.given.values[v].sharding == program.given.values[v].sharding for v in inputs
            )
            if same and found.said not in seen:
                seen.add(found.said)
                with contextlib.suppress(InputError):
                    made = replace(program, given=found.given)
                    made.local  # noqa: B018
                    yield found.said, made


def row(name: str, make: Callable[[Mark], Asked], axis: str) -> str:
    """Return a program's row of the first table."""
    program = make(unmarked).partitioned()
    batch = make(lambda x: sw.constrain(x, f'[{{"{axis}"}}, {{?}}, {{?}}]')).partitioned()
    ways = [("a batch constraint", batch), *beside(program)]
    said, best = min(ways, key=lambda way: way[1].cost)
    figures = program.bytes_received / 2**20, program.cost / 2**20
    bound = program.cost / (program.lower_bound or program.cost)
    won = f"{said}, {best.bytes_received / 2**20:,.1f}" if best.cost < program.cost else "–"
    won = f"{program.cost / best.cost:.3f} | {won}"
    return f"| {name} | {figures[0]:,.1f} | {figures[1]:,.1f} | {bound:.3f} | {len(ways)} | {won} |"


def main() -> None:
    sys.path.insert(0, str(TESTS))
    print("| program | MiB received | cost, MiB | over the bound | ways | over the best | with |")
    print("|---|--:|--:|--:|--:|--:|---|")
    for each in programs():
        print(row(*each), flush=True)
    print()
    print("| layers | mesh | values | tracing | partitioning | bound | GiB | over the bound |")
    print("|---|---|--:|--:|--:|--:|--:|--:|")
    for way, layers, sizes in LLAMAS:
        command = [sys.executable, "-c", LINE % (way, layers, sizes)]
        env = {**os.environ, "JAX_PLATFORMS": "cpu"}
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
        count, *seconds, received, cost, bound = json.loads(done.stdout.splitlines()[-1])
        times = " | ".join(f"{each:.1f}" for each in seconds)
        figures = f"{received / 2**30:,.1f} | {cost / bound:.3f}"
        print(f"| {layers}, {way} | {sizes} | {count:,} | {times} | {figures} |", flush=True)
