"""Bytes of sums are never more than those of the programs that XLA compiles for CPU and for v5e."""

from __future__ import annotations

import pytest

from bench.sum_bytes import drawn, every, measured, read
from shardwright.codegen.operations.compile import targets
from shardwright.ir import InputError, Reshard

PARTS = 16


def check(reshards: list[Reshard]) -> None:
    try:
        targets.require(targets.parse_targets(["v5e:2x4"]), saving=False)
    except InputError as error:
        pytest.skip(" ".join(str(error).split()))
    for each in measured(reshards):
        assert each.least <= each.ours <= min(each.cpu, each.v5e)


@pytest.mark.slow
def test_never_more_than_the_least_of_both() -> None:
    check(drawn(5, seed=1))


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", range(PARTS))
def test_of_all_pairs(part: int) -> None:
    """Every sharding of a matrix that leaves an axis unreduced, to every one."""
    pairs = list(every())
    assert len(pairs) == 1617
    check(pairs[part::PARTS])


GROUPS = "replica_groups={{0,1}}"
SCATTERED = f"""\
%all-reduce-scatter (input: s32[8]) -> s32[4] {{
  %a = s32[8] all-reduce(%input), {GROUPS}
}}

ENTRY %main {{
  %fusion = s32[4] fusion(%x), calls=%all-reduce-scatter
}}
"""


def test_a_reduce_scatter_of_a_tpu_is_a_fusion() -> None:
    assert read(SCATTERED, 2) == 2 * 4 * 4
    assert read(SCATTERED.replace("%all-reduce-scatter (", "%other ("), 2) == 2 * 8 * 4


def test_collectives_in_several_fusions_are_not_counted() -> None:
    with pytest.raises(ValueError, match="several fusions"):
        read("ENTRY %main {\n  chain_id\n}", 2)
