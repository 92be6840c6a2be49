"""What links carry of kernels and of XLA's plans, and why a kernel takes longer."""

from __future__ import annotations

import re

import pytest

import shardwright as sw
from bench import link_loads, verdicts
from bench.reasons import busiest, of_kernel, reason
from shardwright.codegen.moves.network.timeline import cost_of
from shardwright.codegen.moves.plan import network_of
from shardwright.codegen.moves.xla import Collective, XlaCollectives

MESH = sw.Mesh({"x": 8})
NAME = "pallas_tpu"


def reshard(rows: int, columns: int, target: str = '[{}, {"x"}]') -> sw.Reshard:
    sides = MESH.sharding('[{"x"}, {}]'), MESH.sharding(target)
    return sw.Reshard((rows, columns), "float32", *sides)


def plan_of(*moves: Collective) -> XlaCollectives:
    return XlaCollectives(0, 0, 0, "", list(moves))


@pytest.mark.parametrize("topology", ["v5e:2x4", "v6e:2x4"])
def test_parts_of_a_kernel_are_all_that_it_takes(topology: str) -> None:
    asked = reshard(4096, 4096)
    made, network = sw.plan(asked, "direct", topology=topology), network_of(asked, topology)
    parts = of_kernel(NAME, made, network)
    whole = cost_of(sw.codegen.registry.backend(NAME).timeline(made), network)
    assert parts.seconds == pytest.approx(whole.seconds)
    assert min(parts.starts, parts.copies, parts.links) > 0


def test_busiest_link_of_collectives() -> None:
    """Neighbours that send to each other, and twice that."""
    asked = reshard(512, 512)
    network = network_of(asked, "v6e:2x4")
    pairs = [[0, 1], [1, 0], [2, 3], [3, 2]]
    once = Collective("collective-permute", 1 << 20, pairs)
    assert busiest(asked, plan_of(once), network) == pytest.approx(1 << 20)
    assert busiest(asked, plan_of(once, once), network) == pytest.approx(2 << 20)
    assert busiest(asked, plan_of(), network) == 0


def test_reasons() -> None:
    """One of each: what is larger than XLA's plan has it."""
    little, much = reshard(8, 8), reshard(8192, 8192)
    on = {name: network_of(much, name) for name in ("v5e:2x4", "v6e:2x4")}
    made = {each: sw.plan(each, "direct", topology="v6e:2x4") for each in (little, much)}
    slow = plan_of(Collective("all-gather", 1 << 30, [list(range(8))]))
    quick = plan_of(Collective("collective-permute", 4, [[0, 1]]))
    all_to_all = plan_of(Collective("all-to-all", 8192 * 8192 * 4 // 8, [list(range(8))]))
    v5e, v6e = on.values()
    mesh = sw.Mesh({"x": 2, "y": 4})
    sides = mesh.sharding('[{"x", "y"}, {}]'), mesh.sharding('[{"y", "x"}, {}]')
    turned = sw.plan(sw.Reshard((8192, 8192), "float32", *sides), "direct", topology="v5e:2x4")
    assert reason(NAME, made[much], slow, v6e) == ""
    assert reason(NAME, made[little], quick, v6e).startswith("start-ups of ")
    assert reason(NAME, made[much], all_to_all, v6e).startswith("copies that XLA makes")
    assert reason(NAME, turned, quick, v5e).startswith("forwarding in 2 rounds")
    assert reason(NAME, made[much], plan_of(), v6e).startswith("nothing has to move")


def test_all_to_alls_load_links_as_direct_ones_do() -> None:
    """By the table, which a run of the script writes: on a ring of 16 and over both."""
    rows = [line.split("|")[1:-1] for line in link_loads.RESULT.read_text().splitlines()]
    found = [row for row in rows if row and row[0].strip().startswith("all to all")]
    assert len(found) == 6
    for _, _, carried, directly, *_ in found:
        assert float(carried) <= 1.1 * float(directly)


def test_every_slower_kernel_has_a_reason() -> None:
    """By the table: as many as the summary says."""
    lines = verdicts.RESULT.read_text().splitlines()
    reasons = lines[lines.index("## Kernels that take longer than XLA's own plan") :]
    for topology in verdicts.TOPOLOGIES:
        (said,) = (line for line in reasons if line.startswith(f"{topology}: "))
        slower = sum(f"| {topology} |" in line for line in reasons)
        counted = re.search(r" of (\d+), the kernel alone in (\d+) ", said)
        assert counted is not None
        assert int(counted[1]) - slower == int(counted[2])
