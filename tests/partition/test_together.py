"""All-reduces that one line needs at one place are one communication of several values."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Hashable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import shardwright as sw
from shardwright.codegen.partition.local.communications import joined_reasons
from shardwright.codegen.partition.local.fold import made, taken
from shardwright.codegen.partition.local.steps import LocalBody, LocalProgram, MoveValue, Step
from shardwright.codegen.partition.local.together import (
    _key,
    rows_of,
    runs_of,
    together,
)
from shardwright.codegen.partition.passes import LOWERING, run
from shardwright.ir.errors import InputError

ROWS = '[{"d"}, {}]'
MESH = sw.Mesh({"d": 4, "t": 2})
BEFORE = LOWERING[:-1]


def of(*shape: int, dtype: str = "float32") -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def partitioned(fn: Any, *avals: Any, **options: Any) -> sw.Partitioned:
    rows = (ROWS,) * len(avals)
    return sw.partition(fn, *avals, mesh=MESH, in_shardings=rows, **options)


def sums(*arrays: Any) -> Any:
    totals = [each.sum(0) for each in arrays]
    return [abs(each) for each in totals]


def test_one_row_for_each_dtype() -> None:
    """Which names its values, types and bytes, in the module, on the page and in plan.json."""
    dtypes = ("float32", "int32", "complex64")
    program = partitioned(sums, *(of(8, n, dtype=each) for each in dtypes for n in (3, 5)))
    found = program.communications
    assert [(each.op, each.received, each.shape) for each in found] == [
        ("all_reduce", 48, "f32[3], f32[5]"),
        ("all_reduce", 48, "i32[3], i32[5]"),
        ("all_reduce", 96, "c64[3], c64[5]"),
    ]
    assert str(found[0]) == (
        "[C1] all-reduce of 2 values over d, 48 B: reduce_sum sums over dimension 0 of each value, "
        'split over "d"'
    )
    bundle = sw.emit(program)
    names = bundle.rows[1].names
    assert f"{', '.join(names)} = lax.psum((" in bundle.module
    assert bundle.module.count("lax.psum(") == 3
    files = bundle.files("step")
    assert f"`sums: {names[0]}: f32[3], {names[1]}: f32[5]`" in files["README.md"]
    row = json.loads(files["plan.json"])["communications"][0]
    assert (row["names"], row["types"]) == ([*names], ["f32[3]", "f32[5]"])
    assert row["value"] == found[0].value
    alone = sum(partitioned(sums, of(8, n)).seconds("v5e:2x4")[0] for n in (3, 5))
    assert program.seconds("v5e:2x4")[0] < alone


def test_a_value_that_is_needed_earlier_is_not_delayed() -> None:
    """Until another is ready, which depends on it or is made after its use."""

    def step(x: Any, y: Any) -> Any:
        first, second, *others = (each.sum(0) for each in (x, y, x * y))
        return jnp.cos(first), second, [jnp.tanh(each) for each in others]

    def late(x: Any, y: Any) -> Any:
        made = []
        for each in (x, y):
            made.append(jnp.tanh(each.sum(0)))
        return made

    counts = [
        [each.values for each in partitioned(fn, of(8, 4), of(8, 4)).communications]
        for fn in (step, late)
    ]
    assert counts == [[3], [1, 1]]


@pytest.mark.parametrize(("rows", "values"), [(2**13, [2]), (2**15, [1, 1])])
def test_a_large_value_with_other_uses_is_not_held_beside_its_sum(
    rows: int, values: list[int]
) -> None:
    """Its terms are a result, too, and its sum would live from the first all-reduce on."""
    program = partitioned(sums, of(8, 4), of(8, rows))
    local = run(BEFORE, program, program.program)
    first, second = (step for step in local.body.steps if isinstance(step, MoveValue))
    others = [step for step in local.body.steps if step not in (first, second)]
    steps = (*others[:-1], first, others[-1], second)
    uses = (*local.body.results, second.operand)
    apart = replace(local, body=replace(local.body, steps=tuple(steps), results=uses))
    found = [len(each) for each, _ in rows_of(together(apart))]
    assert sorted(found) == sorted(values)


def test_reasons_in_one_sentence() -> None:
    assert joined_reasons(["mul needs a, which is"] * 2) == "mul needs a, which is"
    assert joined_reasons(["mul needs a", "abs needs b"]) == "mul needs a; abs needs b"
    assert joined_reasons(["mul needs a b in c", "mul needs b in c"]) == (
        "mul needs each value in c"
    )
    reduced = [f"mul needs the reduced value of {name}, which" for name in "ab"]
    assert joined_reasons(reduced) == "mul needs the reduced value of each, which"
    assert joined_reasons(["mul needs a", "mul needs a a"]) == "mul needs each value"


def test_numbers_of_rows_have_remedies() -> None:
    program = partitioned(sums, of(8, 8), of(8, 16))
    said = [said for said, _ in program.remedies(1)]
    assert [each.partition(" as ")[0] for each in said] == ["abs_2", "abs"] or len(said) >= 2
    assert program.with_remedy(1).bytes_received < program.bytes_received
    with pytest.raises(InputError) as raised:
        program.remedies(2)
    assert str(raised.value).endswith("got: 2\nexpected: 1 to 1")


def _bodies(program: LocalProgram) -> list[LocalBody]:
    bodies = [program.body, *program.functions]
    for body in bodies:
        bodies += [inner for step in body.steps for inner in getattr(step, "bodies", ())]
    return bodies


def _is_ordered(body: LocalBody, steps: list[Step]) -> bool:
    known = {*body.arguments}
    for step in steps:
        if not known.issuperset(taken(step)):
            return False
        known.update(made(step))
    return known.issuperset(body.results)


def random_sums(seed: int) -> Any:
    """A function that adds rows at one line, and uses the sums of earlier rows in later ones."""
    rng = random.Random(seed)

    def fn(*arrays: Any) -> Any:
        values, totals = [*arrays], [jnp.float32(1)]
        for _ in range(12):
            if rng.random() < 0.6:
                totals.append(rng.choice(values).sum(0))
            else:
                values.append(jnp.sin(rng.choice(values)) * rng.choice(totals[-3:]))
        return totals, rng.choice(values)

    return fn


@pytest.mark.parametrize("mode", ["as_shardy", "cheapest"])
def test_steps_are_kept_in_an_order_that_computes_them(mode: str) -> None:
    """And rows of equal keys that stay apart could run at no place together."""
    joined = apart = 0
    for seed in range(12):
        program = partitioned(random_sums(seed), of(8, 4), of(8, 4), mode=mode)
        before = run(BEFORE, program, program.program)
        after = program.local
        for old, new in zip(_bodies(before), _bodies(after), strict=True):
            assert Counter(map(made, old.steps)) == Counter(map(made, new.steps))
            assert _is_ordered(new, [*new.steps])
            keys: dict[Hashable, list[tuple[Step, ...]]] = defaultdict(list)
            for found in runs_of(after, new.steps):
                if (key := _key(after, found[0])) is not None:
                    keys[key].append(found)
                    joined += len(found) > 1
            for one, other in (pair for runs in keys.values() for pair in pairwise(runs)):
                apart += 1
                others = [step for step in new.steps if step not in (*one, *other)]
                orders = ([*others[:at], *one, *other, *others[at:]] for at in range(len(others)))
                assert not any(_is_ordered(new, order) for order in orders)
    assert joined > 5
    assert apart > 1


def test_a_wrong_place_is_found() -> None:
    program = partitioned(sums, of(8, 4), of(8, 4))
    steps = [*program.local.body.steps]
    assert _is_ordered(program.local.body, steps)
    assert not _is_ordered(program.local.body, steps[::-1])
