"""Random trees of scalars: means over tensors with different shardings, added, scaled and stacked.
As a program, this prints the trees whose emitted modules have other values than one device."""

from __future__ import annotations

import itertools
import json
import math
import operator
import os
import random
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    os.environ["JAX_PLATFORMS"] = "cpu"

import emitted
import jax
import jax.numpy as jnp
import models

import shardwright as sw

MESHES = ({"x": 2, "y": 4}, {"x": 4, "y": 2}, {"x": 2, "y": 2, "z": 2})
WAYS = {
    '[{"x"}, {"y"}]': ("x", "y"),
    '[{"x", "y"}, {}]': ("x", "y"),
    '[{}, {"y"}]': ("y",),
    '[{"x"}, {}]': ("x",),
    "[{}, {}]": (),
}
"""Shardings of arguments, and the axes over which their sums are partial."""
AVAL = jax.ShapeDtypeStruct((16, 16), jnp.float32)
OPS: dict[str, Any] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "neg": operator.neg,
    "half": lambda x: 0.5 * x,
    "sin": jnp.sin,
    "stack": lambda *values: jnp.stack(values),
    "sum": jnp.sum,
}
REDUCED = ("mul", "sin")
"""Ops that need reduced values."""


class Node(NamedTuple):
    """An op, or the mean square of an argument if it has no operands. `size`: the number of
    elements of its result."""

    op: str
    operands: tuple[Any, ...] = ()
    argument: int = 0
    size: int = 1


def norm(count: int) -> Node:
    """The square of a global norm."""
    leaves = [Node("leaf", argument=number) for number in range(count)]
    return _chain(leaves)


def _chain(nodes: list[Node]) -> Node:
    first, *others = nodes
    for node in others:
        first = Node("add", (first, node))
    return first


def tree(dice: random.Random, arguments: Iterator[int], depth: int = 3) -> Node:
    """A random tree, in which each argument occurs once."""
    op = dice.choice(("leaf", "leaf", "add", "add", "sub", "mul", "neg", "half", "sin", "sum"))
    if op == "leaf" or not depth:
        return Node("leaf", argument=next(arguments))
    count = {"add": 2, "sub": 2, "mul": 2, "sum": 3}.get(op, 1)
    operands = tuple(tree(dice, arguments, depth - 1) for _ in range(count))
    if op == "sum":
        return Node("sum", (Node("stack", operands, size=count),))
    return Node(op, operands)


def case(root: Node, dice: random.Random) -> tuple[Any, tuple[str, ...]]:
    """The function of a tree, and random shardings of its arguments."""
    count = sum(not node.operands for node in _nodes(root))

    def fn(*arguments: Any) -> Any:
        def value(node: Node) -> Any:
            if not node.operands:
                return (arguments[node.argument] ** 2).mean()
            return OPS[node.op](*map(value, node.operands))

        return value(root)

    return fn, tuple(dice.choice(list(WAYS)) for _ in range(count))


def partitioned(fn: Any, ways: tuple[str, ...], mesh: Mapping[str, int], mode: str) -> Any:
    return sw.partition(
        fn,
        *[AVAL] * len(ways),
        mesh=sw.Mesh(dict(mesh)),
        in_shardings=ways,
        out_shardings="[]",
        mode=mode,
    )


def _nodes(root: Node) -> Iterator[Node]:
    yield root
    for node in root.operands:
        yield from _nodes(node)


def least(root: Node, ways: tuple[str, ...], mesh: Mapping[str, int]) -> float:
    """The least bytes plus collectives of all choices of the values that are reduced at once."""
    nodes = list(_nodes(root))
    return min(
        _cost(root, ways, mesh, {id(node) for node in itertools.compress(nodes, chosen)})[0]
        for chosen in itertools.product((False, True), repeat=len(nodes))
        if chosen[0]
    )


def _cost(
    node: Node, ways: tuple[str, ...], mesh: Mapping[str, int], reduced: set[int]
) -> tuple[float, frozenset[str]]:
    """The cost of a value, and the axes over which it is partial."""
    if node.operands:
        pairs = [_cost(operand, ways, mesh, reduced) for operand in node.operands]
        total, axes = sum(cost for cost, _ in pairs), frozenset().union(*(a for _, a in pairs))
        if axes and node.op in REDUCED:
            return math.inf, frozenset()
    else:
        total, axes = 0, frozenset(WAYS[ways[node.argument]])
    if id(node) in reduced and axes:
        devices = math.prod(mesh[axis] for axis in axes)
        total, axes = total + 2 * 4 * node.size * (devices - 1) // devices + 1, frozenset()
    return total, axes


def trees(seed: int) -> Iterator[tuple[Node, Any, tuple[str, ...], Mapping[str, int]]]:
    """Trees of a seed with at most twelve nodes, with their functions, shardings and meshes."""
    dice = random.Random(seed)
    while True:
        root = tree(dice, itertools.count())
        if 2 < len(list(_nodes(root))) <= 12:
            yield root, *case(root, dice), dice.choice(MESHES)


def faults(seed: int, count: int) -> dict[str, float]:
    """How far modules are off one device, if they are."""
    found: dict[str, float] = {}
    for number, (_, fn, ways, mesh) in enumerate(itertools.islice(trees(seed), count)):
        for mode in ("as_shardy", "cheapest"):
            program = partitioned(fn, ways, mesh, mode)
            off = _off(fn, program, models.jax_mesh(**mesh))
            if off > 1e-5:
                found[f"tree {number}, {mode}"] = off
    return found


def _off(fn: Any, program: Any, mesh: Any, plant: Any = None) -> float:
    """How far a module is off one device, on means of about 1."""
    keys = jax.random.split(jax.random.key(0), len(program.in_shardings))
    given = [jax.random.normal(key, AVAL.shape) for key in keys]
    module = emitted.module_of(program, plant)
    return float(abs(module["program"](mesh)(*given) - fn(*given)))


def planted() -> float:
    """How far a module is off whose mask is left out, so that every device adds a whole value."""
    fn, _ = case(norm(2), random.Random(0))
    ways, mesh = ('[{"x"}, {"y"}]', '[{}, {"y"}]'), MESHES[0]
    program = partitioned(fn, ways, mesh, "as_shardy")
    mask = r'jnp.where\(lax.axis_index\("x"\) == 0, (\w+), 0\)'

    def plant(text: str) -> str:
        return re.sub(mask, r"\1", text).replace("check_vma=True", "check_vma=False")

    return _off(fn, program, models.jax_mesh(**mesh), plant)


if __name__ == "__main__":
    print(json.dumps({"wrong": faults(*map(int, sys.argv[1:])), "planted": planted()}))
