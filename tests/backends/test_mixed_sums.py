"""Two hundred reshards of terms that mix what sums can have, by every backend."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from mixed_sums import COUNT, FEATURES, MIXED, direct
from running import check
from strategies import exactly, message

import shardwright as sw
from shardwright.codegen.moves import plan
from shardwright.codegen.spec.description import Description

KERNELS = ("pallas_tpu", "triton_gpu")
APART = {("kept", "another order"), ("narrow floats", "integers")}
"""Features that no reshard has both of."""


@pytest.mark.exhaustive
def test_features_meet() -> None:
    """Every two of them in some reshard, each in a good part."""
    assert len({repr(Description.of(reshard, "each")) for reshard in MIXED}) == COUNT == 200
    has = {name: {n for n, each in enumerate(MIXED) if of(each)} for name, of in FEATURES.items()}
    assert min(map(len, has.values())) > COUNT // 10
    met = {pair for pair in itertools.combinations(has, 2) if has[pair[0]] & has[pair[1]]}
    assert met == {*itertools.combinations(has, 2)} - APART
    assert {direct(number).ops for number in range(COUNT)} == {
        "exchange",
        "reduce_scatter, all_gather",
    }


@pytest.mark.exhaustive
@pytest.mark.parametrize("backend", KERNELS)
@pytest.mark.parametrize("number", range(COUNT))
def test_by_kernels(number: int, backend: str, tmp_path: Path) -> None:
    check(backend, [direct(number, backend)], tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", range(COUNT))
def test_by_collectives(number: int, tmp_path: Path) -> None:
    check("jax_xla", [plan(MIXED[number], "basis")], tmp_path)


def test_two_exchanges_between_orders_are_refused() -> None:
    """A plan that is made for other backends."""
    made = direct(147)
    assert made.ops == "reduce_scatter, all_gather"
    assert message(lambda: sw.emit(made, ("pallas_tpu",))) == exactly(
        """
        target_mesh: pallas_tpu reduces in two exchanges only if meshes have the same device order
        got: <["x"=8], device_ids=[6, 3, 4, 7, 1, 2, 5, 0]>
        expected: a plan of one exchange, as sw.plan(…, backends=("pallas_tpu",)) makes it
        """
    )
