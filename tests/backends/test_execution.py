"""Emitted modules, executed: every backend, against the oracle, with poison and race detection."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import all_pairs, random_reshard
from running import check
from sweeps import sampled

from shardwright.codegen import registry
from shardwright.codegen.backends.pallas_tpu.kernel_forms import windows as tpu_windows
from shardwright.codegen.moves import plan
from shardwright.ir import Mesh, Reshard, Sharding
from shardwright.ir.dtypes import DTYPES


def check_modules(backend: str, reshards: list[Reshard], folder: Path) -> None:
    """Emit the module of every reshard and verify it; all that fail are named."""
    check(backend, [plan(reshard) for reshard in reshards], folder)


PAIRS = all_pairs({"x": 2, "y": 3}, (6, 6))


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", range(len(PAIRS)))
@pytest.mark.parametrize("backend", registry.NAMES)
def test_pairs_of_six_by_six(backend: str, number: int, tmp_path: Path) -> None:
    check_modules(backend, [PAIRS[number]], tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(1000, 1200))
@pytest.mark.parametrize("backend", registry.NAMES)
def test_random(backend: str, seed: int, tmp_path: Path) -> None:
    check_modules(backend, [random_reshard(seed)], tmp_path)


@pytest.mark.slow
def test_64_bits_of_which_one_device_has_all(tmp_path: Path) -> None:
    """Its number is known when the kernel is traced, where integers are of 64 bits by default."""
    mesh = Mesh({"x": 4})
    reshards = [
        Reshard(shape, "int64", mesh.sharding(source), mesh.sharding(target))
        for shape in ((1, 5), (1, 1024), (1, 300))
        for source, target in (('[{"x"}, {}]', "[{}, {}]"), ('[{"x"}, {}]', '[{}, {"x"}]'))
    ]
    check_modules("pallas_tpu", reshards, tmp_path)


@pytest.mark.parametrize("backend", sampled(registry.NAMES, "triton_gpu", "jax_xla"))
def test_scalars_and_single_devices(backend: str, tmp_path: Path) -> None:
    alone = Mesh({}, [3])
    pair = Mesh({"x": 2}, [3, 5])
    reshards = [
        Reshard((), "float32", Sharding(alone, ()), Sharding(pair, ())),
        Reshard((), "int8", Sharding(pair, ()), Sharding(alone, ())),
        Reshard((5,), "bool", pair.sharding('[{"x"}]'), alone.sharding("[{}]")),
        Reshard((4,), "float32", alone.sharding("[{}]"), alone.sharding("[{}]")),
    ]
    check_modules(backend, reshards, tmp_path)


@pytest.mark.parametrize("backend", sampled(registry.NAMES, "triton_gpu", "jax_xla"))
def test_rank_eight(backend: str, tmp_path: Path) -> None:
    mesh = Mesh({"x": 2})
    source = mesh.sharding('[{}, {"x"}, {}, {}, {}, {}, {}, {}]')
    target = mesh.sharding('[{}, {}, {}, {}, {}, {}, {"x"}, {}]')
    check_modules(backend, [Reshard((1, 2, 1, 2, 1, 1, 3, 2), "int16", source, target)], tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("backend", registry.NAMES)
def test_every_dtype(backend: str, tmp_path: Path) -> None:
    """Every dtype the backend takes, uneven, with replicas that share the sending."""
    mesh = Mesh({"x": 4, "y": 2})
    source, target = mesh.sharding('[{"x"}, {}]'), mesh.sharding('[{"y"}, {}]')
    reshards = [
        Reshard((7, 3), dtype, source, target)
        for dtype in DTYPES
        if backend != "pallas_tpu" or dtype != "float64"
    ]
    assert len(reshards) == len(DTYPES) - (backend == "pallas_tpu")
    check_modules(backend, reshards, tmp_path)


@pytest.mark.slow
def test_windows_of_many_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unaligned on both sides in both dimensions, in chunks so small that tiles have many, blocks
    meet several source shards, and tiles are cut among holders."""
    monkeypatch.setattr(tpu_windows, "MAX_LANES", 128)
    monkeypatch.setattr(tpu_windows, "MAX_WINDOW", 64 * 256)
    mesh, replicated = Mesh({"x": 2, "y": 3}), Mesh({"x": 4, "y": 2})
    matrix = mesh.sharding('[{"x"}, {"y"}]'), mesh.sharding('[{"y"}, {"x"}]')
    reshards = [Reshard((90, 410), dtype, *matrix) for dtype in ("int8", "float32")]
    for shape, source, target in (
        ((2, 70, 290), '[{}, {"x"}, {}]', '[{"y"}, {}, {"x"}]'),
        ((70, 290), '[{"y"}, {}]', '[{}, {"x"}]'),
        ((70, 2, 290), '[{}, {}, {"x"}]', '[{"x"}, {"y"}, {}]'),
        ((9001,), '[{"x"}]', '[{"y", "x"}]'),
    ):
        sides = replicated.sharding(source), replicated.sharding(target)
        reshards.append(Reshard(shape, "bfloat16", *sides))
    check_modules("pallas_tpu", reshards, tmp_path)
    texts = [path.read_text() for path in tmp_path.glob("*.py")]
    assert all("Form: windows;" in text for text in texts)
    assert any("pieces=Pieces(" in text for text in texts)
    assert sum("chunks=(1, 1)" not in text for text in texts) >= len(texts) - 1


def test_pieces_that_start_within_a_block(tmp_path: Path) -> None:
    """Tiles that are aligned, but whose pieces, one from each holder, are not where blocks are."""
    mesh = Mesh({"x": 2, "y": 4})
    sides = mesh.sharding('[{"x"}, {}]'), mesh.sharding('[{"y":(2)2}, {}]')
    check_modules("pallas_tpu", [Reshard((223, 767), "int8", *sides)], tmp_path)
