"""Local forms of dtypes that lack a zero or an infinity, and of random keys."""

from __future__ import annotations

from typing import Any

import jax
import pytest
from programs import findings

import shardwright as sw
from shardwright.codegen.partition.local.steps import item_bytes
from shardwright.ir.errors import InputError

CASES = (
    *("scales by index", "a row of scales", "scales of rows"),
    *("maxima of windows of float8_e4m3fn", "minima of windows of float8_e4m3fn"),
    *("data of threefry2x32 keys", "data of rbg keys"),
)


def test_dtypes_without_a_zero_or_an_infinity_have_one_devices_values() -> None:
    found = findings("form_process.py", "values", "cheapest", *CASES)
    assert found == dict.fromkeys(CASES, "")


def test_keys_of_a_kind_of_ones_own_are_refused() -> None:
    with pytest.raises(InputError) as caught:
        item_bytes("key<mine>")
    assert str(caught.value) == (
        "fn: the random key must have a type that JAX supports\n"
        "got: key<mine>\nexpected: one of threefry2x32, rbg, unsafe_rbg"
    )


TWO_SUMS = "reduce_scatter reduce_scatter all_gather"
"""Of terms that are not added before a conversion."""


@pytest.mark.parametrize(
    ("given", "result", "ops"),
    [
        ("bfloat16", "float16", TWO_SUMS),
        ("float16", "bfloat16", TWO_SUMS),
        # the second product is of whole operands, as no terms of e8m0 are added up
        ("float8_e5m2", "float8_e8m0fnu", "reduce_scatter all_to_all all_gather all_gather"),
        ("bfloat16", "float32", "all_reduce"),
        ("float8_e4m3fn", "float16", "all_reduce"),
    ],
)
def test_terms_pass_a_conversion_that_keeps_every_value(given: str, result: str, ops: str) -> None:
    """Terms of bfloat16 may be too large for float16, and their sum not."""

    def both(x: Any, w: Any, y: Any, v: Any) -> Any:
        return (x @ w).astype(result) + (y @ v).astype(result)

    avals = [jax.ShapeDtypeStruct((8, 8), dtype) for dtype in (given, given, result, result)]
    where = ('[{}, {"d"}]', '[{"d"}, {}]') * 2
    program = sw.partition(
        *(both, *avals),
        mesh=sw.Mesh({"d": 4}),
        in_shardings=where,
        out_shardings="[{}, {}]",
        mode="cheapest",
    )
    assert " ".join(each.op for each in program.communications) == ops
