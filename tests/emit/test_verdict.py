"""Verdicts: what is best, by how much, in one line; and the page that says so."""

from __future__ import annotations

import pytest

import shardwright as sw
from shardwright.codegen.hardware.presets import name_of, topology_of
from shardwright.codegen.moves.network.timeline import StageCost, TimelineCost
from shardwright.codegen.moves.plan import network_of
from shardwright.codegen.moves.xla import Collective, XlaCollectives
from shardwright.codegen.operations.emit.verdict import (
    Peer,
    Priced,
    backends_on,
    moved_text,
    page_lines,
    price_of,
    verdict,
    verdicts,
)
from shardwright.ir.plan import Plan

GRID = sw.Mesh({"x": 2, "y": 4})
NAMES = ("pallas_tpu", "triton_gpu", "jax_xla")


def planned(topology: str | None = None, extent: int = 4096) -> Plan:
    source, target = GRID.sharding('[{"x", "y"}, {}]'), GRID.sharding('[{}, {"y"}]')
    return sw.plan(sw.Reshard((extent, extent), "float32", source, target), "direct",
                   topology=topology)  # fmt: skip


def took(seconds: float, wire_bytes: int) -> Priced:
    return Priced("jax_xla", TimelineCost((StageCost("all", seconds, 0, 0, 0),), wire_bytes))


def peer(seconds: float) -> Peer:
    return Peer("XLA's own plan", seconds, "2 all-gather", "`jax.device_put` is enough")


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (
            1e-3,
            5.3e-3,
            "jax_xla: 0.001 seconds on v5e:2x4, 5.3 times as fast as XLA's own plan "
            "(2 all-gather); ",
        ),
        (
            1e-3,
            1.02e-3,
            "jax_xla: 0.001 seconds on v5e:2x4, as fast as XLA's own plan; "
            "`jax.device_put` is enough; ",
        ),
        (
            3e-3,
            1e-3,
            "jax_xla: 0.003 seconds on v5e:2x4; better, 3.0 times as fast, is XLA's own plan "
            "(2 all-gather); "
            "`jax.device_put` is enough; ",
        ),
    ],
)
def test_a_verdict_is_one_line(ours: float, theirs: float, expected: str) -> None:
    made = planned()
    least = made.traffic.bound_received_max
    line = verdict(took(ours, least), made, peer(theirs), "v5e:2x4")
    assert line == expected + "moves 1.00 of the least"


def test_both_prices_are_said_where_they_differ() -> None:
    """What is copied where the result leaves the program counts in what is compared."""
    stages = StageCost("tiles", 1e-3, 0, 0, 0), StageCost("a copy", 5e-4, 0, 0, 0, leaving=True)
    ours = Priced("pallas_tpu", TimelineCost(stages, 0))
    assert (ours.cost.seconds, ours.cost.used) == (1.5e-3, 1e-3)
    assert verdict(ours, planned(), peer(3e-3), "v5e:2x4").startswith(
        "pallas_tpu: 0.0015 seconds on v5e:2x4 (0.001 if the program continues with the result), "
        "2.0 times as fast as XLA's own plan (2 all-gather); "
    )


def test_nothing_to_move() -> None:
    side = GRID.sharding('[{"x"}]')
    made = sw.plan(sw.Reshard((8,), "int8", side, side), "direct")
    assert verdict(took(0.0, 0), made, peer(0.0), "h100") == (
        "jax_xla: nothing moves; `jax.device_put` is enough"
    )


def test_padding_is_named_apart_and_small_tensors_have_no_ratio() -> None:
    large, small = planned(), planned(extent=8)
    least = large.traffic.bound_received_max
    assert moved_text(least + 1000, large) == (
        "moves 1.00 of the least, 1,000 of them padding or forwarded"
    )
    least = small.traffic.bound_received_max
    assert moved_text(50_000, small) == (
        f"moves 50,000 bytes, {least} at least, {50_000 - least:,} of them padding or forwarded"
    )


def test_beside_what_xla_does() -> None:
    """On a TPU its backends are meant, and XLA's collectives are priced as ours are."""
    gathers = Collective("all-gather", 4096 * 4096 * 4, [list(range(8))])
    found = XlaCollectives(0, 0, 0, "all-gather", [gathers])
    lines = verdicts(planned("v5e:2x4"), NAMES, "v5e:2x4", found)
    assert [line.partition(":")[0] for line in lines] == ["pallas_tpu", "jax_xla"]
    assert "times as fast as XLA's own plan (all-gather); " in lines[1]
    lines = verdicts(planned("h100"), NAMES, "h100", None)
    assert [line.partition(":")[0] for line in lines] == ["triton_gpu", "jax_xla"]
    assert "the best sequence of collectives, which is no slower than XLA's own" in lines[0]


def test_a_page_says_what_modules_take() -> None:
    """Of the backends that run there; nothing without a topology."""
    made = planned("v5e:2x4")
    lines = page_lines(made, ("pallas_tpu", "triton_gpu"))
    assert len(lines) == 2
    assert lines[0].startswith("pallas_tpu: ")
    assert " seconds on v5e:2x4" in lines[0]
    assert "round 1 of" in lines[1]
    assert page_lines(planned(), NAMES) == ()
    page = sw.emit(made, ("pallas_tpu",)).files("a")["README.md"]
    said = " ".join(f"- {line}" for line in page_lines(made, ("pallas_tpu",)))
    assert said in " ".join(page.split())


def test_auto_is_chosen_by_what_is_emitted() -> None:
    """The cheaper of the modules of both plans, not of ideal exchanges."""
    made = planned("v5e:2x4").reshard
    price = price_of(("jax_xla",), network_of(made, "v5e:2x4"))
    each = [price(sw.plan(made, strategy, topology="v5e:2x4")) for strategy in ("direct", "basis")]
    auto = sw.emit(made, ("jax_xla",), topology="v5e:2x4").plan
    assert price(auto) == min(each)


def test_names_of_topologies() -> None:
    for name in ("v5e:2x4", "v4:2x2x1", "tpu7x:2x2x1", "h100", "h100:4", "h200:2x8", "torus:3x4"):
        assert name_of(topology_of(name)) == name
    assert name_of(topology_of("v5e:2x4,latency=2e-6")) == "torus:2x4"
    assert backends_on(topology_of("h100"), NAMES) == ("triton_gpu", "jax_xla")
    assert backends_on(topology_of("v6e:2x4"), NAMES) == ("pallas_tpu", "jax_xla")
