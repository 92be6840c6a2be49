"""`verify` finds every planted fault that changes data: some by a seed, all in the long sweep."""

from __future__ import annotations

import random

import pytest
from planted.fault import Fault, emitted, found
from planted.fault import edited as edited_by
from planted.table import FAULTS
from sweeps import kept

SEED, DRAWN = 3, 4  # of all three backends
DESCRIBED = [(name, FAULTS[name]) for name in sorted(FAULTS)]

pytest.importorskip("jax")
pytest.importorskip("torch")
pytest.importorskip("triton")


def check(faults: list[tuple[str, Fault]]) -> None:
    """All of them are found, in the words that are expected."""
    said = found([fault for _, fault in faults])
    missed = [
        f"{name}: {detail or 'not found'}"
        for (name, fault), detail in zip(faults, said, strict=True)
        if not detail or fault.said not in detail
    ]
    assert not missed, "\n".join(missed)


def test_every_fault_has_a_place() -> None:
    """What it replaces occurs once; and there are faults of all backends, forty at least."""
    for fault in FAULTS.values():
        _, text, changed = edited_by(fault, emitted())
        assert text != changed
    assert len(FAULTS) >= 40
    assert {fault.backend for fault in FAULTS.values()} == {"triton_gpu", "jax_xla", "pallas_tpu"}


def test_text_that_is_not_there() -> None:
    fault = Fault("triton_gpu", "turn", "torch_wire.py", "no such text", "", "")
    with pytest.raises(ValueError, match="has 0 times: 'no such text'"):
        edited_by(fault, emitted())


def test_some() -> None:
    check(random.Random(SEED).sample(DESCRIBED, DRAWN))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["triton_gpu", "jax_xla", "pallas_tpu"])
def test_all(backend: str) -> None:
    check([each for each in DESCRIBED if each[1].backend == backend])


@pytest.mark.parametrize("count", kept((8, len(FAULTS)), 8))
def test_no_fault_is_found_where_none_is(count: int) -> None:
    """The bundles that faults are planted in are right: some by the seed, or all."""
    bundles = {(fault.backend, fault.bundle): fault for fault in FAULTS.values()}
    drawn = random.Random(SEED).sample(sorted(bundles), min(count, len(bundles)))
    right = [
        Fault(each.backend, each.bundle, each.file, each.right, each.right, "")
        for each in map(bundles.__getitem__, drawn)
    ]
    assert found(right) == [""] * len(right)
