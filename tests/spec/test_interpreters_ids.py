"""Collective ids are none of those that JAX's interpreter takes for its own semaphores."""

from __future__ import annotations

import pytest

from shardwright.codegen.spec.collective_ids import _distinct, _hashed
from shardwright.codegen.spec.description import BUNDLE_IDS, INTERPRETERS_IDS, read_id
from shardwright.ir.errors import InputError


def test_no_operation_gets_one() -> None:
    found = {_hashed(BUNDLE_IDS, number) for number in range(40_000)}
    assert not found & {*INTERPRETERS_IDS}
    assert len(found) > len(BUNDLE_IDS) // 2


def test_no_second_operation_gets_one() -> None:
    before = INTERPRETERS_IDS.start - BUNDLE_IDS.step
    found = _distinct(BUNDLE_IDS, {"one": (None, before), "other": (None, before)})
    assert found == {"other": INTERPRETERS_IDS.stop}


def test_nobody_says_one() -> None:
    with pytest.raises(InputError) as error:
        read_id(2004, BUNDLE_IDS)
    assert str(error.value) == (
        "collective_id: a collective id must not be a number that JAX's interpreter of TPU "
        "kernels reserves\ngot: 2004\nexpected: a number below 2000 or at least 2256"
    )
