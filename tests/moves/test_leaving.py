"""What others get of a shard, counted once: what modules copy before others read it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cases import describe, random_reshard
from mixed_sums import COUNT, direct

from shardwright.codegen import registry
from shardwright.codegen.backends.triton_gpu.phases import exchanges_of
from shardwright.codegen.checks.load import load
from shardwright.codegen.moves import plan
from shardwright.codegen.moves.holders import Loads, candidates
from shardwright.codegen.moves.network.timeline import Copies
from shardwright.codegen.operations.emit.modules import parts
from shardwright.ir.exchange import Exchange, ids_of
from shardwright.ir.plan import Plan
from shardwright.ir.transfers import enumerate_transfers


def exchanges() -> Iterator[Exchange]:
    """Of random reshards, under every rule that could be theirs."""
    for seed in range(120):
        (exchange,) = exchanges_of(plan(random_reshard(seed), "direct"))
        for rule in candidates(exchange):
            yield Exchange(exchange.source, exchange.target, rule)


def test_what_leaves_is_the_boxes_of_all_transfers() -> None:
    """One by one, each box once: replicas of a target shard may get it from the same device."""
    shared = 0
    for exchange in exchanges():
        moved = enumerate_transfers(exchange)
        boxes = zip(moved.sender.tolist(), moved.tensor.tolist(), moved.is_local, strict=True)
        left = {(sender, str(box)): box for sender, box, is_local in boxes if not is_local}
        expected = dict.fromkeys(ids_of(exchange.source.mesh).tolist(), 0)
        for (sender, _), box in left.items():
            expected[sender] += int(np.prod([high - low for low, high in box], dtype=np.int64))
        loads = Loads(exchange.source, exchange.target, exchange)
        found = loads.leaving(exchange.rule)
        assert found.tolist() == list(expected.values()), exchange
        shared += bool((found < loads.sent(exchange.rule)).any())
    assert shared > 40


def plans() -> Iterator[Plan]:
    """Sums in one exchange and in two, and what stays unreduced; moves."""
    yield from map(direct, range(0, COUNT, 12))
    yield from (plan(random_reshard(seed), "direct") for seed in range(0, 60, 6))


def test_stages_copy_what_modules_copy(tmp_path: Path) -> None:
    """Read and written, on the device that copies most; by the entries that modules list."""
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    for number, made in enumerate(plans()):
        path = tmp_path / f"case{number}.py"
        path.write_text(parts(made, "triton_gpu", "c", single_file=True)[0].text)
        staged = [
            max(
                sum(entry.rows * entry.columns for entry in phase.processes._staged(device, False))
                for device in phase.exchange.source.ids
            )
            for phase in load(path)._HOST.phases
        ]
        stages = registry.backend("triton_gpu").timeline(made).stages
        copied = [stage.nbytes for stage in stages if isinstance(stage, Copies)]
        assert copied == [2 * nbytes for nbytes in staged], describe(made.reshard)
