"""Whole models, partitioned: values beside one device's, what they move, bytes beside XLA's."""

from __future__ import annotations

import itertools
from typing import Any

import experts
import pytest
from programs import findings
from sweeps import swept

MODES = ("as_shardy", "cheapest")
FAMILIES = (
    *("gpt-2 step, dp", "gpt-2 step, fsdp", "gpt-2 step, tp", "convolutions", "experts"),
    "decoding",
)


def run(*words: str) -> dict[str, Any]:
    found: dict[str, Any] = findings("model_process.py", *words)
    return found


def test_tokens_go_to_their_experts_and_nothing_else_does() -> None:
    """Two exchanges forward, one backward; the gradient of the gate is summed, and the loss."""
    found = run("kinds", "cheapest", "experts")
    slots = experts.EXPERTS * experts.GROUPS * experts.SLOTS * experts.WIDTH * 4 // 8
    exchange, gate = slots * 7 // 8, 2 * 7 * experts.WIDTH * experts.EXPERTS * 4 // 8
    for name in ("einsum", "indices"):
        assert found[f"experts by {name}"] == [["all_to_all", exchange]] * 2
        step = sorted(found[f"experts by {name}, step"])
        assert [kind for kind, _ in step] == ["all_reduce"] * 2 + ["all_to_all"] * 3
        assert sum(size for _, size in step) <= 3 * exchange + gate + 8


@pytest.mark.slow
def test_experts_and_a_cache_have_one_devices_values() -> None:
    found = run("values", "cheapest", "by indices") | run("values", "as_shardy", "by position")
    assert [said for said in found.values() if said] == []


RUNS = [*itertools.product(FAMILIES, MODES)]


@pytest.mark.parametrize("number", swept(range(len(RUNS)), 5))
def test_every_model_has_one_devices_values(number: int) -> None:
    family, mode = RUNS[number]
    found = run("values", mode, family)
    assert {name: said for name, said in found.items() if said} == {}


@pytest.mark.slow
@pytest.mark.parametrize("family", ["convolutions", "experts", "decoding"])
def test_models_receive_no_more_than_with_xla(family: str) -> None:
    """On CPUs; `bench/models.md` has the models at their full size, and other partitioners."""
    found = run("bytes", "cheapest", family)
    assert {name: both for name, both in found.items() if both[0] > both[1]} == {}
