"""Forms that forward though all receivers are in reach, on tori of any extents: hops along whole
axes, which need not have a power of two of devices, nor wrap around."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
from lone import alone_in_form
from running import reports_of

import shardwright as sw
from shardwright.codegen.backends.pallas_tpu.routed.strategy import ForwardingForm
from shardwright.codegen.backends.pallas_tpu.strategy import FormChoice, choices
from shardwright.codegen.backends.pallas_tpu.terms import moved
from shardwright.codegen.backends.pallas_tpu.verify.contract import programs_of
from shardwright.codegen.backends.pallas_tpu.verify.deliveries import check_deliveries
from shardwright.codegen.backends.pallas_tpu.verify.protocol import check_protocol
from shardwright.codegen.backends.pallas_tpu.verify.trace import trace
from shardwright.codegen.checks.load import load
from shardwright.codegen.operations.verify import Case
from shardwright.ir.plan import DirectPlan, direct_of

SIDES = (
    ('[{"x"}, {"y"}]', '[{"y"}, {"x"}]'),
    ('[{"x", "y"}, {}]', '[{"y", "x"}, {}]'),
    ('[{"x"}, {}]', '[{"y"}, {}]'),
    ('[{"x", "y"}, {}]', '[{}, {"y"}]'),
)


def random_plan(seed: int, most: int) -> DirectPlan:
    """A reshard over all devices of a torus of at most so many, in order or backwards."""
    rng = random.Random(seed)
    dims = [100]
    while math.prod(dims) > most:
        dims = [rng.choice([2, 3, 4, 5]) for _ in range(rng.choice([2, 2, 3]))]
    size, wraps = math.prod(dims), "x".join(rng.choice("01") for _ in dims)
    latency = rng.choice(["1e-9", "1e-6"])
    figures = f"wrap={wraps},bandwidth=5e10,latency={latency},memory=8e11"
    first = rng.choice([each for each in range(2, size) if size % each == 0])
    ids = [*range(size)][:: rng.choice([1, 1, -1])]
    mesh = sw.Mesh({"x": first, "y": size // first}, ids)
    source, target = (mesh.sharding(text) for text in rng.choice(SIDES))
    shape = rng.randint(1, 90), rng.randint(1, 300)
    dtype = rng.choice(["float32", "int8", "bfloat16", "bool", "int64"])
    asked = sw.Reshard(shape, dtype, source, target)
    topology = f"torus:{'x'.join(map(str, dims))},{figures}"
    return direct_of(sw.plan(asked, "direct", topology=topology))


def detours(made: DirectPlan) -> list[FormChoice]:
    return [choice for choice in made.once(choices) if choice.straight is not None]


def extents(choice: FormChoice) -> set[int]:
    """How many devices hops go along, of those that binary digits do not give."""
    assert isinstance(choice.form, ForwardingForm)
    return {hop.extent for hop in choice.form.schedule.partners if hop.by * 2 >= hop.extent > 2}


@pytest.mark.parametrize("count", [pytest.param(10, marks=pytest.mark.slow)])
def test_what_goes_over_random_tori_comes_where_it_should(count: int, tmp_path: Path) -> None:
    """Before emission, and by what modules do, without moving anything."""
    pytest.importorskip("jax")
    known = set[int]()
    for seed in range(count):
        made = random_plan(seed, 20)
        for number, choice in enumerate(detours(made)):
            choice.form.prove(moved(made))
            known |= extents(choice)
            path = tmp_path / f"case{seed}_{number}.py"
            path.write_text(alone_in_form(made, choice))
            module = load(path)
            events = trace(module, *programs_of(module), made.exchange.ranks.size)
            check_protocol(events)
            check_deliveries(*programs_of(module), events)
    assert known >= {3, 4, 5}


@pytest.mark.slow
def test_modules_on_random_tori_move_what_they_should(tmp_path: Path) -> None:
    """Against the oracle, with races on."""
    pytest.importorskip("jax")
    cases = []
    for seed in range(100, 116):
        made = random_plan(seed, 8)
        for choice in (each for each in detours(made) if extents(each)):
            path = tmp_path / f"case{len(cases)}.py"
            path.write_text(alone_in_form(made, choice))
            cases.append(Case.of(made.reshard, f"{seed} {choice.form}", "pallas_tpu", path))
    assert len(cases) >= 8
    failed = [r for r in reports_of("pallas_tpu", cases[:4]) if r.verdict != "ok"]
    assert not failed, "\n".join(f"{r.name}\n    {r.detail}" for r in failed)
