"""A plan's transfers against the definition: the right ones pass, each wrong one is named."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from cases import random_reshard

from shardwright.codegen.moves import plan
from shardwright.codegen.operations.verify import Case
from shardwright.codegen.operations.verify.transfers import as_rows, disagreement
from shardwright.ir import Mesh, Reshard
from shardwright.ir.transfers import Transfers


def reshard() -> Reshard:
    """5 rows over two devices to 4 columns over two devices."""
    mesh = Mesh({"x": 2}, [7, 3])
    return Reshard((5, 4), "int8", mesh.sharding('[{"x"}, {}]'), mesh.sharding('[{}, {"x"}]'))


def fault(what: Reshard, transfers: Transfers) -> str:
    """What is wrong with transfers as those of a reshard."""
    case = Case.of(what, "case", "triton_gpu", Path())
    return disagreement(transfers, case.source, case.target, what.shape)


@pytest.mark.parametrize("seed", range(40))
def test_plans_agree(seed: int) -> None:
    what = random_reshard(seed)
    assert fault(what, plan(what).transfers()) == ""


def test_rows_are_sender_receiver_and_ranges() -> None:
    assert as_rows(plan(reshard()).transfers()) == (
        (3, 3, 3, 5, 2, 4),
        (3, 7, 3, 5, 0, 2),
        (7, 3, 0, 3, 2, 4),
        (7, 7, 0, 3, 0, 2),
    )


def without(transfers: Transfers, number: int) -> Transfers:
    """The transfers but one."""
    fields = dataclasses.fields(transfers)
    return Transfers(*(np.delete(getattr(transfers, f.name), number, axis=0) for f in fields))


def twice(transfers: Transfers, number: int) -> Transfers:
    """The transfers, and one of them again."""
    fields = dataclasses.fields(transfers)
    arrays = (getattr(transfers, field.name) for field in fields)
    return Transfers(*(np.concatenate([array, array[number : number + 1]]) for array in arrays))


def edited(transfers: Transfers, name: str, at: tuple[int, ...], value: int) -> Transfers:
    """The transfers with one number changed."""
    array = getattr(transfers, name).copy()
    array[at] = value
    return dataclasses.replace(transfers, **{name: array})


def test_a_transfer_left_out() -> None:
    transfers = without(plan(reshard()).transfers(), 1)
    assert fault(reshard(), transfers) == "device 7: its tiles have 6 elements of 10"


def test_a_transfer_made_twice() -> None:
    transfers = twice(plan(reshard()).transfers(), 2)
    assert fault(reshard(), transfers) == "device 3: its tiles overlap"


def test_a_sender_that_does_not_hold_what_it_sends() -> None:
    transfers = edited(plan(reshard()).transfers(), "sender", (1,), 7)
    assert (
        fault(reshard(), transfers) == "transfer 1: it is outside the shard of the sender, device 7"
    )


def test_a_receiver_that_does_not_want_it() -> None:
    transfers = edited(plan(reshard()).transfers(), "receiver", (1,), 3)
    assert (
        fault(reshard(), transfers)
        == "transfer 1: it is outside the shard of the receiver, device 3"
    )


def test_a_local_range_off_by_one() -> None:
    transfers = edited(plan(reshard()).transfers(), "target", (0, 0, 0), 4)
    assert (
        fault(reshard(), transfers)
        == "transfer 0: it is at the wrong place in the shard of the receiver, device 3"
    )
