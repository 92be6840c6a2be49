"""The printed examples of the fifth seed's collectives, under their names: modules of collectives
by name beside `jax.lax` on CPU devices."""

from __future__ import annotations

import json

import pytest
from lone import alone
from sessions import session

import shardwright as sw
from shardwright.ir.reshard import Reshard

LINE, SQUARE = sw.Mesh({"i": 4}), sw.Mesh({"i": 2, "j": 2})
TERMS = LINE.sharding('[{}], unreduced={"i"}')
AROUND = [(k, (k + 1) % 4) for k in range(4)]

EXAMPLES: dict[str, Reshard] = {
    "psum_f1": sw.all_reduce((4,), "int32", TERMS, "i"),
    "psum_f2": sw.all_reduce((2, 4), "int32", SQUARE.sharding('[{}, {"j"}], unreduced={"i"}'), "i"),
    "psum_f3": sw.all_reduce(
        (2, 2), "int32", SQUARE.sharding('[{}, {}], unreduced={"i", "j"}'), ("i", "j")
    ),
    "all_gather_f4": sw.all_gather((4,), "int32", LINE.sharding('[{"i"}]'), "i"),
    "all_gather_f5": sw.all_gather((4,), "int32", LINE.sharding('[{"i"}]'), "i", tiled=False),
    "psum_scatter_f6": sw.reduce_scatter((4,), "int32", TERMS, "i"),
    "psum_scatter_untiled": sw.reduce_scatter((4,), "int32", TERMS, "i", tiled=False),
    "ppermute_f7": sw.permute((8,), "int32", LINE.sharding('[{"i"}]'), "i", pairs=AROUND),
    "all_to_all_f9": sw.all_to_all(
        (4, 4), "int32", LINE.sharding('[{"i"}, {}]'), "i", dim=1, tiled=False
    ),
    "all_gather_backward": sw.reduce_scatter((4,), "float32", TERMS, "i"),
    "reduce_scatter_backward": sw.all_gather((4,), "float32", LINE.sharding('[{"i"}]'), "i"),
    "pmean": sw.all_reduce((4,), "float32", TERMS, "i"),
    "pmax": sw.all_reduce((4,), "int32", LINE.sharding('[{}], unreduced=max{"i"}'), "i"),
}

SCRIPT = """
import importlib.util, json
from functools import partial
from pathlib import Path
import jax, numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec as P

folder = Path(folder)
devices = np.array(jax.devices()[:4])
line, square = Mesh(devices, ("i",)), Mesh(devices.reshape(2, 2), ("i", "j"))
long = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 1, 2], np.int32)
short = np.array([3, 9, 5, 2], np.int32)
grid = np.arange(16, dtype=np.int32).reshape(4, 4)
of = lambda *specs: dict(zip(("mesh", "in_specs", "out_specs"), specs))
shmap = partial(jax.shard_map, check_vma=False)


def load(name):
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    m = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(m)
    return m


def ours(name, x, mesh, target=None):
    m = load(name)
    given = jax.device_put(x, m.source_sharding(mesh))
    y = m.reshard(given, mesh, target_mesh=target or mesh)
    by_device = sorted(y.addressable_shards, key=lambda shard: shard.device.id)
    return [np.asarray(shard.data) for shard in by_device]


def theirs(x, mesh, f, into, out_of):
    y = jax.jit(shmap(f, **of(mesh, into, out_of)))(x)
    by_device = sorted(y.addressable_shards, key=lambda shard: shard.device.id)
    return [np.asarray(shard.data) for shard in by_device]


shifted = Mesh(devices[[1, 2, 3, 0]], ("i",))
every, tiled = P("i"), dict(tiled=True)
pairs = [(k, (k + 1) % 4) for k in range(4)]
blocks = grid.reshape(2, 2, 4).transpose(0, 1, 2)
corners = np.stack([grid[2 * i : 2 * i + 2, 2 * j : 2 * j + 2] for i in (0, 1) for j in (0, 1)])
cases = {
    "psum_f1": (ours("psum_f1", long.reshape(4, 4), line),
                theirs(long, line, lambda x: lax.psum(x, "i"), every, P())),
    "psum_f2": (ours("psum_f2", blocks, square),
                theirs(grid, square, lambda x: lax.psum(x, "i"), P("i", "j"), P(None, "j"))),
    "psum_f3": (ours("psum_f3", corners, square),
                theirs(grid, square, lambda x: lax.psum(x, ("i", "j")), P("i", "j"), P())),
    "all_gather_f4": (ours("all_gather_f4", short, line),
                      theirs(short, line, lambda x: lax.all_gather(x, "i", **tiled), every, P())),
    "all_gather_f5": (ours("all_gather_f5", short[:, None], line),
                      theirs(short, line, lambda x: lax.all_gather(x, "i"), every, P())),
    "psum_scatter_f6": (
        ours("psum_scatter_f6", long.reshape(4, 4), line),
        theirs(long, line, lambda x: lax.psum_scatter(x, "i", **tiled), every, every)),
    "psum_scatter_untiled": (
        [shard[0] for shard in ours("psum_scatter_untiled", long.reshape(4, 4), line)],
        [shard[0] for shard in
         theirs(long, line, lambda x: lax.psum_scatter(x, "i")[None], every, every)]),
    "ppermute_f7": (ours("ppermute_f7", np.arange(8, dtype=np.int32), line, shifted),
                    theirs(np.arange(8, dtype=np.int32), line,
                           lambda x: lax.ppermute(x, "i", pairs), every, every)),
    "all_to_all_f9": (
        [shard[:, 0] for shard in ours("all_to_all_f9", long.reshape(4, 4), line)],
        theirs(long, line, lambda x: lax.all_to_all(x, "i", 0, 0, **tiled), every, every)),
    "pmean": ([shard / 4 for shard in ours("pmean", long.reshape(4, 4).astype(np.float32), line)],
              theirs(long.astype(np.float32), line, lambda x: lax.pmean(x, "i"), every, P())),
    "pmax": (ours("pmax", long.reshape(4, 4), line),
             theirs(long, line, lambda x: lax.pmax(x, "i"), every, P())),
}
# What is moved back: through a gather, of which every device has a cotangent of its own, and
# through a scatter.
numbers = np.random.default_rng(0)
wide, narrow = (numbers.integers(-9, 9, size).astype(np.float32) for size in (16, 4))
gathered = lambda x: lax.all_gather(x, "i", **tiled)
scattered = lambda x: lax.psum_scatter(x, "i", **tiled)


def back(f, x, cotangent):
    y = jax.vjp(jax.jit(shmap(f, **of(line, every, every))), x)[1](cotangent)[0]
    return np.split(np.asarray(y), 4)


cases["all_gather_backward"] = (
    ours("all_gather_backward", wide.reshape(4, 4), line), back(gathered, narrow, wide))
cases["reduce_scatter_backward"] = (
    ours("reduce_scatter_backward", narrow, line), back(scattered, wide, narrow))
for name, (mine, other) in cases.items():
    assert len(mine) == len(other) == 4, name
    for one, two in zip(mine, other):
        np.testing.assert_array_equal(one, two, err_msg=name)
print(json.dumps({name: [shard.tolist() for shard in mine] for name, (mine, _) in cases.items()}))
"""

FOUR, ROW = [22, 20, 12, 17], [3, 9, 5, 2]
PRINTED = {
    "psum_f1": [FOUR] * 4,
    "psum_f2": [[[8, 10], [16, 18]], [[12, 14], [20, 22]]] * 2,
    "psum_f3": [[[20, 24], [36, 40]]] * 4,
    "all_gather_f4": [ROW] * 4,
    "all_gather_f5": [[[3], [9], [5], [2]]] * 4,
    "psum_scatter_f6": [[number] for number in FOUR],
    "ppermute_f7": [[6, 7], [0, 1], [2, 3], [4, 5]],
    "all_to_all_f9": [[3, 5, 5, 9], [1, 9, 3, 7], [4, 2, 5, 1], [1, 6, 8, 2]],
}
"""What the seed prints, a device each; it has f8 print as f6 does, made of other collectives."""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list]:
    pytest.importorskip("jax")
    folder = tmp_path_factory.mktemp("collectives")
    for name, reshard in EXAMPLES.items():
        made = sw.plan(reshard, backends=("jax_xla",))
        (folder / f"{name}.py").write_text(alone(made, "jax_xla"))
    printed = session().run(SCRIPT, folder=str(folder))
    found: dict[str, list] = json.loads(printed.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", PRINTED)
def test_printed(name: str, done: dict[str, list]) -> None:
    assert done[name] == PRINTED[name]


def test_the_backward_of_an_all_gather_is_a_reduce_scatter(done: dict[str, list]) -> None:
    """And the reverse, as the fourth seed has it: each beside what JAX moves back."""
    assert {"all_gather_backward", "reduce_scatter_backward"} <= done.keys()
    for kind in ("all_gather_backward", "reduce_scatter_backward"):
        assert len(done[kind]) == 4
