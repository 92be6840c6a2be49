"""Shardings in HLO's notation: what they are on a mesh, against the oracle, and mistakes."""

from __future__ import annotations

import math
import random

import pytest
from cases import random_sharding
from commands import run
from strategies import exactly, message

from shardwright.codegen.checks.case import placement
from shardwright.codegen.checks.oracle import definition as oracle
from shardwright.ir import Mesh, Sharding
from shardwright.ir.text.parse import parse_sharding

GRID = Mesh({"x": 4, "y": 2})

READ = (
    ("{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}", '[{"y"}, {}]'),
    ("{devices=[4,2]<=[8]}", '[{"x"}, {"y"}]'),
    ("{devices=[2,4]0,2,4,6,1,3,5,7}", '[{"y"}, {"x"}]'),
    ("{devices=[2,1,4]0,2,1,3,4,5,6,7 last_tile_dim_replicate}", '[{"x":(1)2}, {}]'),
    ("sharding={devices=[8]<=[2,2,2]T(1,0,2)}", '[{"x":(2)2, "x":(1)2, "y"}]'),
    (
        "{devices=[2,2,2]<=[8] last_tile_dims={unreduced, replicated}}",
        '[{"x":(1)2}], unreduced={"x":(2)2}',
    ),
    ('{devices=[8,1]<=[8] metadata={op_name="jit(f)/dot"}}', '[{"x", "y"}, {}]'),
    ("{replicated}", "[{}, {}]"),
    ("{unreduced}", '[{}, {}], unreduced={"x", "y"}'),
    ("{devices=[4,2,1]<=[8] last_tile_dims={manual}}", '[{"x"}, {"y"}]'),
)


@pytest.mark.parametrize(("text", "expected"), READ)
def test_read(text: str, expected: str) -> None:
    assert str(parse_sharding(text, GRID, rank=2)) == expected


def test_one_device_has_it() -> None:
    sharding = parse_sharding("{maximal device=3}", GRID)
    assert sharding.mesh == Mesh({}, [3])
    assert sharding.for_rank(2).local_shape((4, 4)) == (4, 4)


def written(sharding: Sharding, rng: random.Random) -> str:
    """A list of the device of every tile, by the oracle; replicas in any order."""
    side = placement(sharding, "flat")
    tiles: dict[tuple[int, ...], list[int]] = {}
    for device, tile in oracle.shard_numbers(side).items():
        tiles.setdefault(tile, []).append(device)
    ids = []
    for tile in sorted(tiles):
        ids += rng.sample(tiles[tile], len(tiles[tile]))
    shape = (*side.parts(), sharding.mesh.size // math.prod(side.parts()))
    listed = ",".join(map(str, ids))
    return f"{{devices=[{','.join(map(str, shape))}]{listed} last_tile_dim_replicate}}"


@pytest.mark.parametrize("seed", range(150))
def test_what_the_oracle_writes_is_read(seed: int) -> None:
    """Sub-axes in any order, meshes of permuted and of other devices."""
    rng = random.Random(seed)
    axes = rng.choice([{"x": 4, "y": 2}, {"x": 2, "y": 3}, {"x": 12}, {"x": 2, "y": 2, "z": 2}])
    ids = rng.sample(range(20), Mesh(axes).size)
    mesh = Mesh(axes, ids if seed % 2 else None)
    sharding = random_sharding(rng, mesh, rng.randint(1, 3))
    assert parse_sharding(written(sharding, rng), mesh) == sharding


def test_the_command_line_reads_it() -> None:
    flags = ("--mesh", "x=4,y=2", "--shape", "8x8", "--dtype", "int8", "--target", "{replicated}")
    result = run(
        "plan", *flags, "--source", "{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}"
    )
    assert result.code == 0, result.err
    assert 'int8 8x8: [{"y"}, {}]' in result.out
    assert "-> [{}, {}]" in result.out


MISTAKES = (
    (
        "{devices=[8]0,1,2,3,4,5,7,6}",
        """
        the tiles must be shards along axes or sub-axes of the mesh
          {devices=[8]0,1,2,3,4,5,7,6}
                    ^
        got: {devices=[8]0,1,2,3,4,5,7,6}
        expected: a tile assignment that follows the axes of <["x"=4, "y"=2]>
        """,
    ),
    (
        "{devices=[3,2]<=[6]}",
        """
        there must be a tile for each device of the mesh
          {devices=[3,2]<=[6]}
                    ^^^
        got: 6 tiles
        expected: 8 tiles, for <["x"=4, "y"=2]>
        """,
    ),
    (
        "{devices=[8]<=[2,4]T(0,0)}",
        """
        a transpose must name each dimension of the iota once
          {devices=[8]<=[2,4]T(0,0)}
                               ^^^
        got: 0,0
        expected: an order of 0, 1
        """,
    ),
    (
        "{devices=[8]0,1,2,3,4,5,6,6}",
        """
        each tile must have a different device
          {devices=[8]0,1,2,3,4,5,6,6}
                      ^^^^^^^^^^^^^^^
        got: 0,1,2,3,4,5,6,6
        expected: 8 distinct ids
        """,
    ),
    (
        "{maximal device=9}",
        """
        every device must be in the mesh
          {maximal device=9}
                          ^
        got: device 9
        expected: ids of <["x"=4, "y"=2]>
        """,
    ),
    (
        "{devices=[2,4]<=[8] last_tile_dims={shared}}",
        """
        unknown kinds of the last tile dimensions
          {devices=[2,4]<=[8] last_tile_dims={shared}}
                                              ^^^^^^
        got: shared
        expected: at most 2 of the kinds replicated, unreduced and manual
        """,
    ),
    (
        "{devices=[2,4]<=[8] last_tile_dims={manual}}",
        """
        a manual sharding does not say how the tensor is split: each device holds its own value
          {devices=[2,4]<=[8] last_tile_dims={manual}}
                                              ^^^^^^
        got: manual
        expected: the sharding outside the shard_map, as given by its in_specs or out_specs
        """,
    ),
    (
        "{manual}",
        """
        a manual sharding does not say how the tensor is split: each device holds its own value
          {manual}
           ^^^^^^
        got: manual
        expected: the sharding outside the shard_map, as given by its in_specs or out_specs
        """,
    ),
    (
        "{replicated}",
        """
        the text does not give the rank
          {replicated}
           ^^^^^^^^^^
        got: replicated
        expected: [{}, {}]
        """,
    ),
    (
        "{devices=[8]}",
        """
        the text is not a sharding
          {devices=[8]}
          ^^^^^^^^^^^^^
        got: {devices=[8]}
        expected: {replicated}, {maximal device=3} or {devices=[2,1,4]<=[8] last_tile_dim_replicate}
        """,
    ),
)


@pytest.mark.parametrize(("text", "expected"), MISTAKES)
def test_mistakes(text: str, expected: str) -> None:
    assert message(lambda: parse_sharding(text, GRID)) == exactly(expected)
