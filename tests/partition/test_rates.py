"""What bytes are weighed against: by default a guess, on a topology its model."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import pytest

import shardwright as sw
from shardwright.codegen.moves.paths import Tensor, way
from shardwright.codegen.ops.layout import LocalLayout
from shardwright.codegen.partition.local.rates import rates_of
from shardwright.codegen.show.program_review import program_text

PIECES = (("d", 2), ("t", 4))
X, W = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((1024, 64), (64, 1024)))


def program(topology: str | None) -> sw.Partitioned:
    """A product of which each device computes its rows and receives the others, or receives what
    it takes to compute all."""
    return sw.partition(
        lambda x, w: x @ w,
        *(X, W),
        mesh=sw.Mesh({"d": 8}),
        in_shardings=('[{"d"}, {}]', "[{}, {}]"),
        out_shardings="[{}, {}]",
        mode="cheapest",
        topology=topology,
    )


def test_without_a_topology_it_is_a_guess() -> None:
    rates = rates_of(PIECES, range(8), None)
    assert rates.operations("f32") == rates.operations("bf16") == 1000
    assert (rates.touched, rates.slow) == (5, ())


def test_on_a_topology_it_is_that_of_chips_and_links() -> None:
    rates = rates_of(PIECES, range(8), "h100:8")
    assert rates.operations("bf16") == pytest.approx(989e12 / rates.bandwidth)
    assert rates.operations("f32") == pytest.approx(67e12 / rates.bandwidth)
    assert rates.touched == pytest.approx(3.35e12 / rates.bandwidth, rel=0.05)
    assert [round(times, 1) for _, times in rates.slow] == [1, 1]


def test_axes_over_fewer_links_are_slow() -> None:
    """Along an axis of two chips a v5e receives over one link, along one of four over two, each
    byte passing fewer of them."""
    slow = dict(rates_of(PIECES, range(8), "v5e:2x4").slow)
    assert slow["t"] == 1
    assert slow["d"] > 1


def test_the_fast_axis_is_taken() -> None:
    """Along the axis of four more is gathered, over two links in place of one."""
    sources = (LocalLayout((("d",),)), LocalLayout((("t",),)))
    for pieces, axis in ((PIECES, "t"), ((("t", 2), ("d", 4)), "d")):
        tensor = Tensor((1 << 22,), 4, pieces, rates_of(pieces, range(8), "v5e:2x4").pace)
        _, _, (change,) = way(sources, LocalLayout(((),)), tensor)
        assert change.axes == (axis,)


def test_latencies_count() -> None:
    """What is small is gathered whole at once, rather than in part by an exchange."""
    source, target = LocalLayout((("d", "t"), ())), LocalLayout(((), ("d",)))
    pace = rates_of(PIECES, range(8), "h100:8").pace
    for rows, ops in ((32, ["all_gather", "slice"]), (4096, ["exchange"])):
        _, _, changes = way((source,), target, Tensor((rows, 1024), 4, PIECES, pace))
        assert [change.op for change in changes] == ops, rows


@pytest.mark.parametrize("topology", ["v5e:2x4", "h100:8"])
def test_a_path_costs_the_seconds_of_its_collectives(topology: str) -> None:
    """Of permutes too, whose pairs of devices decide how many cross a link."""
    pace, counts = rates_of(PIECES, range(8), topology).pace, set[tuple[str, int]]()
    assert pace
    ends = ('[{"d", "t"}, {}]', '[{"t", "d"}, {}]', '[{"d"}, {"t"}]', '[{"t"}, {"d"}]', "[{}, {}]")
    for start, end in itertools.permutations(ends, 2):
        sides = {"in_shardings": start, "out_shardings": end}
        x = jax.ShapeDtypeStruct((1024, 1024), jnp.float32)
        moved = sw.partition(lambda x: x, x, mesh=sw.Mesh(dict(PIECES)), topology=topology, **sides)
        own = moved.local
        before, after = (own.values[v].layout for (v,) in (own.body.arguments, own.body.results))
        price, *_ = way((before,), after, Tensor((1024, 1024), 4, PIECES, pace))
        assert price / pace.bandwidth == pytest.approx(sum(moved.seconds(topology)), rel=1e-4)
        counts |= {(each.op, each.rounds) for each in moved.communications}
    assert {("permute", 1), ("permute", 2), ("all_to_all", 1)} <= counts


def test_a_plan_follows_what_chips_and_links_do() -> None:
    """Processors multiply slowly: each computes its rows. Chips are idle while they receive."""
    assert program(None).bytes_received == 7 * 128 * 64 * 4
    assert program("v5e:2x4").bytes_received == 7 * 128 * 64 * 4
    assert program("cpu:8").bytes_received == 7 * 128 * 1024 * 4


def test_the_price_stands_beside_the_bytes() -> None:
    made = program(None)
    says = program_text(made).splitlines()[1]
    assert "(a byte is worth 1,000 operations of a float32 matmul, or 5 bytes read or" in says
    assert made.computed == max(2 * 1024**2 * 64 / 1000, (1024**2 + 2 * 64 * 1024) * 4 / 5)
    on_chips = program_text(program("v5e:2x4"))
    assert "(on v5e:2x4 a byte is worth 2,537 operations of" in on_chips.splitlines()[1]


def test_a_topology_must_be_known() -> None:
    with pytest.raises(sw.InputError, match="topology"):
        program("v5x:2x4")
    with pytest.raises(sw.InputError, match="every device of the meshes"):
        program("v5e:2x2").bytes_received  # noqa: B018
