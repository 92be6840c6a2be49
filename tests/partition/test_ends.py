"""Padded ends: values inside a program whose extents do not divide, next to one device."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import uneven_rows
from jax import lax
from programs import findings
from sweeps import swept

import shardwright as sw
from shardwright.codegen.ops.fills import DTYPES, FLOATS, neutral
from shardwright.codegen.ops.table import kind_of
from shardwright.codegen.partition import planned

REDUCTIONS = {
    **{f"reduce_{kind}": getattr(jnp, kind) for kind in ("sum", "prod", "max", "min")},
    **{kind: getattr(jnp, kind) for kind in ("argmax", "argmin")},
    **{f"cum{kind}": getattr(lax, f"cum{kind}") for kind in ("sum", "prod", "max", "min")},
    "cumlogsumexp": lax.cumlogsumexp,
    "reduce_and": jnp.bitwise_and.reduce,
    "reduce_or": jnp.bitwise_or.reduce,
    "reduce_xor": jnp.bitwise_xor.reduce,
}
BITS = ("reduce_and", "reduce_or", "reduce_xor")
NAMES = {"bf": "bfloat", "f": "float", "i": "int", "u": "uint"}
ROWS = '[{"d"}, {}]'


def wrong(*words: str) -> dict[str, str]:
    """What is wrong with random functions."""
    found = findings("emitted_process.py", *words)
    return {name: said for name, said in found.items() if said}


def dtypes_of(kind: str) -> Iterator[tuple[str, str]]:
    """The dtypes of up to 32 bits that a kind takes, with the names that numpy has for them."""
    for dtype in sorted(DTYPES):
        name = re.sub("^(bf|f|i|u)(?=[0-9])", lambda found: NAMES[found[0]], dtype)
        fits = dtype not in FLOATS if kind in BITS else dtype != "bool"
        if fits and "64" not in dtype and (kind != "cumlogsumexp" or dtype in FLOATS):
            yield dtype, name


@pytest.mark.parametrize("kind", sorted(REDUCTIONS))
def test_neutral_numbers_change_nothing(kind: str) -> None:
    fill = kind_of(kind).fill
    assert isinstance(fill, str)
    assert fill
    for dtype, name in dtypes_of(kind):
        x = jnp.asarray(np.random.default_rng(0).integers(0, 9, 7), name)
        padded = jnp.concatenate([x, jnp.full(3, neutral(fill, dtype), name)])
        made = REDUCTIONS[kind](padded)
        np.testing.assert_array_equal(made[:7] if made.ndim else made, REDUCTIONS[kind](x))


def test_random_functions_have_one_devices_values() -> None:
    assert wrong("uneven", "0", "3") == {}


@pytest.mark.parametrize("start", swept(range(0, 300, 10), 60))
def test_the_sweep_of_random_functions(start: int) -> None:
    assert wrong("uneven", str(start), str(start + 10)) == {}


@pytest.mark.parametrize("start", swept(range(0, 300, 10), 100))
def test_no_result_and_no_gradient_reads_padded_rows(start: int) -> None:
    assert wrong("poisoned", str(start), str(start + 10)) == {}


@pytest.mark.parametrize("mode", ["as_shardy", "cheapest"])
def test_only_neighbours_exchange_rows(mode: str) -> None:
    """One row of 16 floats, then the sum; not the seven eighths of a gather, 3,584 bytes."""
    x = jax.ShapeDtypeStruct((64, 16), "float32")
    program = sw.partition(
        lambda x: jnp.exp(x[1:] - x[:-1]).sum(),
        *(x,),
        mesh=sw.Mesh({"d": 8}),
        in_shardings=(ROWS,),
        mode=mode,
    )
    assert [(each.op, each.received) for each in program.communications] == [
        ("permute", 64),
        ("all_reduce", 7),
    ]


@pytest.mark.parametrize("mode", ["as_shardy", "cheapest"])
def test_ends_are_not_padded_where_that_costs_more(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All devices have the rows and need the result. If they split it, a row is exchanged first."""
    x = jax.ShapeDtypeStruct((64, 16), "float32")

    def received() -> int:
        fn = lambda x: sw.constrain(x[1:], ROWS) + 1  # noqa: E731
        mesh = sw.Mesh({"d": 8})
        program = sw.partition(
            *(fn, x), mesh=mesh, in_shardings=("[{}, {}]",), out_shardings="[{}, {}]", mode=mode
        )
        return program.bytes_received

    assert received() == 0
    monkeypatch.setattr(planned, "in_order", lambda plans: plans)
    assert received() == (1 + 7 * 8) * 16 * 4


@pytest.mark.parametrize(
    ("padded", "gathered", "is_padded"),
    [
        ((10, 20), (12, 22), True),
        ((10, 20), (12, 18), True),  # receives less
        ((10, 20), (8, 22), True),  # costs less
        ((10, 20), (8, 18), False),
        ((10, 20), (10, 20), False),
    ],
)
def test_which_plan_comes_first(
    padded: tuple[int, int],
    gathered: tuple[int, int],
    is_padded: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Plans are given as their received bytes and their cost."""
    monkeypatch.setattr(planned, "received", lambda plan: plan[0])
    monkeypatch.setattr(planned, "cost", lambda plan: plan[1])
    plans: list[Any] = [padded, gathered]
    assert planned.in_order(plans)[0] == (padded if is_padded else gathered)


def test_attention_is_not_computed_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """To receive 4,103 bytes less, every device would compute all of it."""
    tried: list[tuple[int, float]] = []
    own = planned.in_order

    def in_order(plans: Any) -> Any:
        tried.extend((planned.received(plan), planned.cost(plan)) for plan in plans)
        return own(plans)

    monkeypatch.setattr(planned, "in_order", in_order)
    (given,) = (each for each in uneven_rows.patterns() if each.name == "attention")
    sides = {"in_shardings": given.inputs, "out_shardings": given.output}
    program = sw.partition(given.fn, *given.avals, mesh=given.mesh, mode="as_shardy", **sides)
    assert program.bytes_received == 1_839_111
    (padded, least), (gathered, most) = tried
    assert (padded, gathered) == (1_839_111, 1_835_008)
    assert most > 2 * least


def test_the_reason_names_the_extent_that_does_not_divide() -> None:
    """The axis cannot split the other dimension either."""
    x = jax.ShapeDtypeStruct((64, 3), "float32")
    program = sw.partition(
        lambda x: jnp.flip(x[1:], 0).sum(),
        *(x,),
        mesh=sw.Mesh({"d": 8}),
        in_shardings=(ROWS,),
        mode="as_shardy",
    )
    (reason,) = (each.reason for each in program.communications if each.op == "all_gather")
    divided = "8 does not divide the 63 elements of dimension 0 of slice"
    repeated = 'the devices along "d" then repeat 100 % of the computation'
    assert reason == f"slice needs dimension 0 of x whole: {divided}; {repeated}"


def test_arguments_and_results_keep_their_shapes() -> None:
    x = jax.ShapeDtypeStruct((63, 16), "float32")
    program = sw.partition(lambda x: x + 1, x, mesh=sw.Mesh({"d": 8}), in_shardings=("[{?}, {?}]",))
    values, body = program.local.program.values, program.local.body
    assert {values[v].shape for v in (*body.arguments, *body.results)} == {(63, 16)}
