"""Compares with Shardy's passes in a process of its own: prints differences as JSON, by case.

python tests/parity_process.py models layer:fsdp+tp …
python tests/parity_process.py random plain 0 10
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from cpu_devices import flags

os.environ["XLA_FLAGS"] = flags(8)
os.environ["JAX_PLATFORMS"] = "cpu"

import control_cases
import gpt2
import models
import more_models
import parity
import random_functions
import rule_cases
import sdy_peer

from shardwright.codegen.partition.entry import partition


def of_models(names: list[str]) -> dict[str, object]:
    found = {}
    for name in names:
        model, _, strategy = name.partition(":")
        fn, avals, inputs, outputs, mesh = models.case(model, strategy)
        differences, count, _, _ = parity.compare(fn, avals, mesh, inputs, outputs)
        found[name] = [differences, count]
    return found


def of_gpt2(layers: str, *strategies: str) -> dict[str, object]:
    """The training step of a GPT-2-like model of so many layers."""
    found = {}
    for strategy in strategies:
        fn, avals, inputs, outputs, mesh = gpt2.case(strategy, int(layers))
        found[strategy] = parity.compare(fn, avals, mesh, inputs, outputs)[:2]
    return found


def of_random(kind: str, first: str, last: str) -> dict[str, object]:
    sdy_peer.lower_constraints()
    found = {}
    several = random_functions.MESHES if kind == "meshes" else random_functions.MESHES[:1]
    edges = "gather" if kind == "edges" else "allow"
    for seed in range(int(first), int(last)):
        made = random_functions.case(seed, kind != "plain", meshes=several)
        shardings = made.inputs, made.outputs
        differences, count, _, _ = parity.compare(
            made, made.avals, random_functions.MESH, *shardings, by_text=True, edges=edges
        )
        found[str(seed)] = [differences, count]
    return found


def of_origins(names: list[str]) -> dict[str, object]:
    """Where the axes of each value came from, ours beside the passes'.

    A name is a model and a strategy, a case of `control_cases`, or the seed of a random function.
    """
    control = {name: case for name, *case in control_cases.cases()}
    found = {}
    for name in names:
        if name.isdigit():
            found[name] = _origins_of_random(int(name))
            continue
        fn, avals, inputs, outputs, mesh = control.get(name) or models.case(*name.split(":"))
        said = {} if outputs is None else {"out_shardings": outputs}
        module = sdy_peer.module_of(fn, avals, in_shardings=inputs, **said)
        found[name] = _origins(fn, avals, mesh, inputs, outputs, module)
    return found


def _origins_of_random(seed: int) -> parity.Compared:
    made = random_functions.case(seed, False)
    module = sdy_peer.module_of(made, made.avals)
    sdy_peer.annotate(module, list(made.inputs), list(made.outputs))
    shardings = made.inputs, made.outputs
    return _origins(made, made.avals, random_functions.MESH, *shardings, module)


def _origins(fn: Any, avals: Any, mesh: Any, inputs: Any, outputs: Any, module: Any) -> Any:
    rows = sdy_peer.Rows(sdy_peer.propagated(module, sdy_peer.ORIGINS))
    with parity.by_kind():
        ours = partition(fn, *avals, mesh=mesh, in_shardings=inputs, out_shardings=outputs)
    return parity.origins(ours, rows)


def of_more() -> dict[str, object]:
    """Convolutions, experts, dropout, rotary positions, a cache; forward and training steps."""
    return {
        name: parity.compare(fn, avals, mesh, inputs)[:2]
        for name, fn, avals, inputs, mesh in more_models.cases()
    }


def of_control() -> dict[str, object]:
    """Loops, branches and manual computations by hand."""
    return {
        name: parity.compare(fn, avals, mesh, inputs, outputs)[:2]
        for name, fn, avals, inputs, outputs, mesh in control_cases.cases()
    }


def plant(fault: str) -> None:
    """Spoil the rule of a kind of op: nothing is moved through it. Or let `meshes` be mixed."""
    from shardwright.codegen.propagate import rules
    from shardwright.codegen.propagate.graph import Graph

    if fault != "meshes":
        del rules._RULES[fault]
        return
    real = Graph.meshes_of
    Graph.meshes_of = lambda graph, node: set(sorted(real(graph, node))[:1])  # type: ignore[method-assign]


if __name__ == "__main__":
    if "PARITY_PLANTED" in os.environ:
        plant(os.environ["PARITY_PLANTED"])
    what, *words = sys.argv[1:]
    if what == "models":
        print(json.dumps(of_models(words)))
    elif what == "random":
        print(json.dumps(of_random(*words)))
    elif what == "gpt2":
        print(json.dumps(of_gpt2(*words)))
    elif what == "more":
        print(json.dumps(of_more()))
    elif what == "control":
        print(json.dumps(of_control()))
    elif what == "origins":
        print(json.dumps(of_origins(words)))
    else:
        print(json.dumps(rule_cases.compared()))
