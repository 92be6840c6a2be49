"""Public faults of converters and loaders: each is found by `compare`, with its name and range."""

from __future__ import annotations

import pytest
from public_faults import FAULTS, NAMED, Fault

import shardwright as sw


def thread(fault: Fault) -> str:
    return fault.thread.partition(":")[0]


@pytest.mark.parametrize("fault", FAULTS, ids=thread)
def test_fault(fault: Fault) -> None:
    """The fault is named where it is, and the right function gives no alarm: not beside itself, nor
    beside the layout that is learned from it."""
    how = {"logical": fault.logical, "ranks": fault.ranks}
    found = str(sw.compare(fault.wrong, fault.right, **how)).splitlines()
    assert (len(found), found[0]) == NAMED[thread(fault)]
    assert sw.compare(fault.right, fault.right, **how).same
    learned = sw.learn(fault.right, **how)
    if not learned.findings:
        assert sw.compare(fault.right, learned.stored).same
        assert not sw.compare(fault.wrong, learned.stored).same


def test_twenty() -> None:
    assert len({*map(thread, FAULTS)}) == len(FAULTS) >= 20
    assert {*map(thread, FAULTS)} == {*NAMED}
