"""The table of predicted over measured seconds: who is fitted, who judges, how many are near."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest

import shardwright as sw
from bench import measure
from shardwright.codegen.hardware.presets import topology_of
from shardwright.codegen.operations.bundles.measure import Measured
from shardwright.codegen.operations.kinds import answers_of

TRUE = topology_of("cpu:8,bandwidth=9e8,latency=4e-5,launch=2e-4,memory=5e9,multiplies=2e10")
COUNT = 10


def timed(name: str, what: sw.Reshard | sw.Matmul) -> Measured:
    """A module that takes what it takes on TRUE."""
    planned = sw.emit(what, backends=("jax_xla",), topology=measure.TOPOLOGY)
    said = planned.description(name)
    price = answers_of(said).price(said, "jax_xla")
    return Measured(name, "jax_xla", 8, "ok", "", price(TRUE), price)


def counts(text: str) -> list[int]:
    """How many are within 1.5: of the fit by the preset and fitted, of the others."""
    return [int(found) for found in re.findall(r"^\| \d+, .*? \| the \w+ \| (\d+)", text, re.M)]


@pytest.mark.slow  # of a driver that is run by hand
def test_halves_and_counts() -> None:
    cases = dict(measure.drawn(2 * COUNT + 1))
    kinds = Counter(name.split("_")[0] for name in list(cases)[1::2])
    assert kinds == Counter(reshard=6, sum=2, matmul=2)
    found = [timed(*case) for case in cases.items()]
    quick = replace(found[0], seconds=measure.QUICK / 2)  # which leaves the other ones
    halves = found[1::2], found[2::2]
    text = measure.table([quick, *found[1:]], cases, COUNT)
    fitted, after = counts(text)[1::2]
    assert fitted == after == COUNT
    assert max(counts(text)[::2]) < COUNT
    slower = [replace(each, seconds=4 * each.seconds) for each in halves[1]]
    mixed = [each for pair in zip(halves[0], slower, strict=True) for each in pair]
    assert counts(measure.table(mixed, cases, COUNT))[1::2] == [COUNT, 0]
    with pytest.raises(sw.InputError, match="too few modules are slow enough"):
        measure.table(found[2:], cases, COUNT)
