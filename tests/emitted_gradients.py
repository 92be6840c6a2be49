"""Whether the gradients in an emitted module are those that their names say: `d_h` is compared with
the gradient by `h`, which jax finds by adding a perturbation to `h` in the same text."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

SUFFIXES = re.compile(r"_(transposed|reshaped|again)\w*$")
Key = tuple[str, str, int]
"""A function, a name in it, and the number of the function's call."""


class Watched:
    """A module of one device whose every assignment reports its value. `changes`: what is added to
    values."""

    def __init__(self, text: str) -> None:
        tree = ast.parse(text)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name != "program":
                _watch(node)
        self.scope: dict[str, Any] = {"__name__": "emitted", "_enter": self.enter}
        self.scope["_seen"] = self.see
        exec(compile(ast.fix_missing_locations(tree), "emitted", "exec"), self.scope)
        self.changes: dict[Key, Any] = {}
        self.start()

    def start(self) -> None:
        self.calls: Counter[str] = Counter()
        self.values: dict[Key, Any] = {}

    def enter(self, function: str) -> None:
        self.calls[function] += 1

    def see(self, function: str, name: str, value: Any) -> Any:
        key = function, name, self.calls[function] - 1
        if key in self.changes:
            value = value + self.changes[key]
        if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jnp.floating):
            self.values[key] = value
        return value


def _watch(function: ast.FunctionDef) -> None:
    names = [argument.arg for argument in function.args.args]
    body = [ast.parse(f"_enter({function.name!r})").body[0]]
    body += (_report(function.name, name) for name in names)
    for statement in function.body:
        body.append(statement)
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        parts = (part for target in targets for part in ast.walk(target))
        names = [part.id for part in parts if isinstance(part, ast.Name)]
        body += (_report(function.name, name) for name in names)
    function.body = body


def _report(function: str, name: str) -> ast.stmt:
    return ast.parse(f"{name} = _seen({function!r}, {name!r}, {name})").body[0]


def wrong_names(text: str, main: str, *args: Any) -> list[str]:
    """The gradients of a module whose values are not those of which their names tell, or that tell
    of a name which the module has not. The first result of `main` is the loss."""
    module = Watched(text)
    run = module.scope[main]
    run(*args)
    values, calls = dict(module.values), Counter(module.calls)
    forward = [key for key in values if not key[1].startswith(("d_", "bwd_"))]

    def loss(changes: Any, args: Any) -> Any:
        module.start()
        module.changes = changes
        return jax.tree.leaves(run(*args))[0]

    zeros = {key: jnp.zeros_like(values[key]) for key in forward}
    graded = jax.jit(jax.grad(loss, argnums=(0, 1), allow_int=True))
    gradients, by_argument = graded(zeros, args)
    module.changes = {}
    leaves = {
        re.sub(r"\W+", "_", jax.tree_util.keystr(path)).strip("_"): leaf
        for path, leaf in jax.tree_util.tree_flatten_with_path(by_argument)[0]
    }
    found = []
    for (function, name, call), value in values.items():
        if name.startswith("d_") and not name.endswith("_reduced"):
            of = SUFFIXES.sub("", name.removeprefix("d_"))
            own = [*_candidates(gradients, calls, function, of, call)]
            own += _of_arguments(leaves, calls[function], of, call)
            if not any(_is_alike(each, value, name) for each in own):
                found.append(f"{name} in {function}, call {call}, of {len(own)} values")
    return found


def _candidates(
    gradients: dict[Key, Any], calls: Counter[str], function: str, of: str, call: int
) -> Iterator[Any]:
    for (other, name, number), gradient in gradients.items():
        if name != of:
            continue
        if 1 in (calls[function], calls[other]) or number in _layers(calls, other, function, call):
            yield gradient


def _layers(calls: Counter[str], other: str, function: str, call: int) -> range:
    """The calls of a forward function that may be of the layer of a call of a backward one. There
    may be more or fewer calls of one of them, because the first or last layer has no function."""
    last, more = calls[other] - 1 - call, abs(calls[other] - calls[function])
    return range(last - more, last + more + 1)


def _of_arguments(leaves: dict[str, Any], calls: int, of: str, call: int) -> Iterator[Any]:
    for path, gradient in leaves.items():
        own = path.partition("_")[2]  # without the number of the argument
        is_layer = calls > 1 and re.fullmatch(
            rf"\w+?_({calls - 1 - call}|{calls - call})_{of}", own
        )
        if is_layer or re.fullmatch(rf"[a-z]+_{own}", of):
            yield gradient


def _is_alike(gradient: Any, value: Any, name: str) -> bool:
    if SUFFIXES.search(name):
        gradient, value = (np.sort(np.ravel(each)) for each in (gradient, value))
    if np.shape(gradient) != np.shape(value):
        return False
    return np.allclose(gradient, value, rtol=1e-3, atol=1e-5 + 1e-4 * np.abs(value).max())
