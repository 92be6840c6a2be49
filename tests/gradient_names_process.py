"""Compares gradients in emitted modules with their names, in a process of its own.

python tests/gradient_names_process.py random FIRST LAST: random losses, by seeds from FIRST to
before LAST; python tests/gradient_names_process.py layers [NAME=NAME …]: a program with layers, in
whose module names are exchanged. Prints the wrong names as JSON.
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from emitted_gradients import wrong_names

import shardwright as sw

STEPS = (
    '{v} = jnp.tanh({a} @ p["w{n}"] + p["b{n}"])',
    '{v} = {a} @ p["w{n}"]',
    "{v} = {a} * {b}",
    "{v} = {a} + {b}",
    "{v} = jnp.exp(-{a} * {b})",
    "{v} = {a} - {b}.mean(-1, keepdims=True)",
    '{v} = norm({a}, p["b{n}"])',
    "{v} = jax.nn.relu({a})",
    "{v} = {a} @ {b}.T * 0.1",
    "{v} = jax.nn.softmax({a})",
    "{v} = jnp.concatenate([{a}[:, :4], {b}[:, 4:]], 1)",
    "{v} = jax.checkpoint(jnp.sin)({a})",
    "{v} = jax.lax.scan(lambda c, r: (jnp.sin(c + r), c * r), {a}[0], {b})[1]",
    "{v} = jnp.where({a} > 0, {a}, {b})",
    "{v} = jax.nn.gelu({a} / (1 + {b} ** 2))",
)
NORM = """
def norm(x, scale):
    mean = x.mean(-1, keepdims=True)
    var = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / jnp.sqrt(var + 1e-5) * scale
"""


def written(text: str, folder: str) -> Callable[..., Any]:
    """The function `fn` of a text, which is written to a file."""
    scope: dict[str, Any] = {"jax": jax, "jnp": jnp}
    file = Path(folder) / "given.py"
    file.write_text(text)
    exec(compile(text, file, "exec"), scope)
    return scope["fn"]  # type: ignore[no-any-return]


def drawn(seed: int) -> str:
    """The text of a random loss with its gradient. Names occur twice."""
    draw = random.Random(seed)
    lines, made = [], ["x"]
    for _ in range(draw.randint(3, 9)):
        v = draw.choice("hkyz")
        a, b = draw.choice(made[-3:]), draw.choice(made)
        lines.append(draw.choice(STEPS).format(v=v, a=a, b=b, n=draw.randint(0, 2)))
        made.append(v)
    end = draw.choice((f"jnp.sum({made[-1]} * {draw.choice(made)})", f"({made[-1]} ** 2).mean()"))
    body = "".join(f"        {line}\n" for line in lines)
    by = draw.choice(("0", "(0, 1)"))
    return (
        f"{NORM}\ndef fn(p, x):\n    def loss(p, x):\n{body}        return {end}\n"
        f"    return jax.value_and_grad(loss, argnums={by})(p, x)\n"
    )


def arguments() -> Any:
    draw = np.random.default_rng(0)
    of = lambda *shape: jnp.asarray(draw.normal(size=shape), jnp.float32)  # noqa: E731
    p = {f"w{n}": of(8, 8) * 0.3 for n in range(3)} | {f"b{n}": of(8) for n in range(3)}
    return p, of(8, 8)


def module_of(text: str, *args: Any) -> str:
    avals = jax.tree.map(jax.typeof, args)
    with tempfile.TemporaryDirectory() as folder:  # its lines are read while it is partitioned
        program = sw.partition(written(text, folder), *avals, mesh=sw.Mesh({"d": 1}))
    return sw.emit(program).module


LAYERS = f"""{NORM}
def block(p, x):
    h = norm(x, p["norm1"])
    q, k = h @ p["wq"], h @ p["wk"]
    weights = jax.nn.softmax(q @ k.T)
    x = x + weights @ h
    h = jax.nn.gelu(norm(x, p["norm2"]) @ p["w1"] + p["b1"])
    return x + h @ p["w2"]

def fn(p, x):
    def loss(p):
        y = x
        for layer in p["layers"]:
            y = block(layer, y)
        return (norm(y, p["norm"]) ** 2 @ p["head"]).mean()
    return jax.value_and_grad(loss)(p)
"""


def of_random(first: str, last: str) -> dict[str, list[str]]:
    args = arguments()
    texts = {seed: drawn(seed) for seed in range(int(first), int(last))}
    return {text: wrong_names(module_of(text, *args), "fn", *args) for text in texts.values()}


def of_layers(*exchanged: str) -> dict[str, list[str]]:
    draw = np.random.default_rng(0)
    of = lambda *shape: jnp.asarray(draw.normal(size=shape) * 0.3, jnp.float32)  # noqa: E731
    shapes = {"w1": (8, 16), "b1": (16,), "w2": (16, 8), "wq": (8, 4), "wk": (8, 4)}
    norms = {"norm1": (8,), "norm2": (8,)}
    layers = [{name: of(*s) for name, s in (shapes | norms).items()} for _ in range(4)]
    args = {"layers": layers, "norm": of(8), "head": of(8, 8)}, of(8, 8)
    text = module_of(LAYERS, *args)
    for pair in exchanged:
        one, other = pair.split("=")
        names = {one: other, other: one}
        planted = re.sub(rf"\b({one}|{other})\b", lambda word, to=names: to[word[0]], text)
        assert planted != text
        text = planted
    (backward,) = (each for each in text.split("\n\n\n") if "    d_w1" in each)
    named = re.findall(r"^    (d_\w+) = ", backward, re.MULTILINE)
    return {"wrong": wrong_names(text, "fn", *args), "named": sorted({*named})}


if __name__ == "__main__":
    kinds = {"random": of_random, "layers": of_layers}
    print(json.dumps(kinds[sys.argv[1]](*sys.argv[2:])))
