"""The torch support modules in one process: numbers that identify, graphs, what is refused."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from every_feature import EVERY
from gpu_cases import make

from shardwright.codegen.checks.load import load
from shardwright.codegen.operations.emit.emit import emit
from shardwright.ir import Mesh, Reshard

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

SIX = make({"x": 2, "y": 3}, (6, 6), '[{"x"}, {"y"}]', '[{"y"}, {"x"}]')


def module_of(reshard: Reshard, folder: Path) -> tuple[ModuleType, Any]:
    """An emitted module, and a function from names to its support modules."""
    emit(reshard, ("triton_gpu",), features=EVERY).write(folder / "bundles" / "case")
    module = load(folder / "bundles" / "case" / "triton_gpu.py")
    root = module.__name__.split(".")[0]
    return module, lambda name: sys.modules[f"{root}._support.{name}"]


def shards_of(module: ModuleType) -> list[Any]:
    """Source shards of zeros."""
    return [torch.zeros(module.source_shape(each), device="cpu") for each in module.SOURCE_IDS]


@pytest.mark.parametrize("dtype", ["bool", "int8", "int16", "float32", "float64"])
def test_numbers_identify_elements(dtype: str, tmp_path: Path) -> None:
    reshard = make({"x": 5}, (40, 30), '[{"x"}, {}]', "[{}, {}]", dtype=dtype)
    module, support = module_of(reshard, tmp_path)
    check = support("torch_check")
    host = module._HOST
    turns = [check._shards(host, turn)[1][0] for turn in range(host.turns())]
    bytes_of = [turn.contiguous().view(-1).view(torch.uint8).view(1200, -1) for turn in turns]
    elements = torch.cat(bytes_of, dim=1)
    assert len({tuple(element) for element in elements.tolist()}) == 1200
    assert elements.any(dim=1).all()


def test_pieces_between_one_pair_in_any_order(tmp_path: Path) -> None:
    """Both ends pack by box, however they list the pieces."""
    _, support = module_of(SIX, tmp_path)
    sides, processes = support("sides"), support("torch_processes")
    cuts = importlib.import_module(f"{sides.__name__.rpartition('.')[0]}.cuts")
    ends = [sides.Side([each], lambda position: (0, 7)) for each in (0, 1)]
    exchange = cuts.CutExchange(
        *ends, lambda _: [(0, 0), (0, 1)], lambda _: [(0, 1), (0, 0)], cuts.Cut(2, 0, 1)
    )
    assert exchange.fault() == ""
    kept = {"before": lambda out: out, "after": lambda held, out: None}
    tiles = SimpleNamespace(together=())
    moves = (SimpleNamespace(exchange=exchange, itemsize=1, tiles=tiles, **kept),)
    home = torch.device("cpu")
    sender, receiver = (processes.Wire(moves, device, home) for device in (0, 1))
    given, result = torch.arange(7, dtype=torch.uint8), torch.zeros(7, dtype=torch.uint8)
    packed, _ = sender.buffers()
    sender.pack([given], packed)
    receiver.unpack(packed, [result])
    assert result.equal(given)


def test_tables_while_a_graph_is_captured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of the call before, whichever its stream, kept for good; else one that it fills."""
    _, support = module_of(SIX, tmp_path)
    tensors, listed = support("torch_tensors"), support("triton_listed")
    home = torch.device("cpu")
    before = tensors.table((7, 8), home)
    with monkeypatch.context() as patch:
        patch.setattr(tensors, "stream", lambda device: 1)
        patch.setattr(tensors, "capturing", lambda device: True)
        assert tensors.table((7, 8), home) is before
        large = (2**62 + 1, 3)
        assert tensors.table(large, home).tolist() == [*large]
        patch.setattr(listed, "capturing", lambda device: True)
        said = (
            r"^a first call cannot be captured in a CUDA graph: make one call before the capture$"
        )
        with pytest.raises(RuntimeError, match=said):
            listed.Listed(listed.entries_of((0, 4), (0, 4), (0, 4), 1, 0, 0), home)
    address = before.data_ptr()
    del before
    for number in range(300):
        tensors.table((number, number), home)
    assert any(kept.data_ptr() == address for kept in support("torch_graphs")._READ)


def test_tensors_are_made_where_they_are_needed(tmp_path: Path) -> None:
    module, _ = module_of(SIX, tmp_path)
    with torch.device("meta"):
        moved = module.reshard_local(shards_of(module))
    assert {shard.device.type for shard in moved} == {"cpu"}


def test_out_in_memory_of_its_own(tmp_path: Path) -> None:
    """Views of one flat buffer; a generator."""
    module, _ = module_of(SIX, tmp_path)
    memory = torch.arange(72.0)
    shards = [memory[6 * k : 6 * k + 6].view(3, 2) for k in range(6)]
    wanted = module.reshard_local([shard.clone() for shard in shards])
    out = (memory[36 + 6 * k : 42 + 6 * k].view(2, 3) for k in range(6))
    moved = module.reshard_local(shards, out=out)
    assert all(one.equal(other) for one, other in zip(moved, wanted, strict=True))
    assert moved[0].data_ptr() == memory[36:].data_ptr()
    late = [memory[35 + 6 * k : 41 + 6 * k].view(2, 3) for k in range(6)]
    with pytest.raises(ValueError, match=r"^out of device 0: shares memory with a source shard"):
        module.reshard_local(shards, out=late)


def test_what_is_refused(tmp_path: Path) -> None:
    module, _ = module_of(SIX, tmp_path)
    meta = [shard.to("meta") for shard in shards_of(module)]
    said = r"^got source shards on \['meta'\], expected all on GPUs or all on CPU$"
    with pytest.raises(ValueError, match=said):
        module.reshard_local(meta)
    with pytest.raises(
        ValueError,
        match=r"^got Tensor, expected a DTensor; for the shard of this rank, call reshard$",
    ):
        module.reshard_dtensor(torch.zeros(6, 6))


def test_symmetric_source_of_other_meshes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every rank makes the memory, those outside the source mesh too: the others wait for them."""
    apart = make({"x": 2}, (4, 4), '[{"x"}, {}]', '[{}, {"t"}]', Mesh({"t": 2}, [2, 3]))
    module, _ = module_of(apart, tmp_path)
    made: list[int] = []
    rank = SimpleNamespace(number=0)

    def source_buffer(group: object, home: object) -> torch.Tensor:
        made.append(rank.number)
        return torch.empty(64, dtype=torch.uint8)

    monkeypatch.setattr(module._MEMORY, "source_buffer", source_buffer)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda group: rank.number)
    shapes = []
    for number in range(4):
        rank.number = number
        shard = module.symmetric_source(object())
        shapes.append(None if shard is None else tuple(shard.shape))
    assert made == [0, 1, 2, 3]
    assert shapes == [(2, 4), (2, 4), None, None]


def test_a_whole_tensor_is_told_its_part(tmp_path: Path) -> None:
    module, _ = module_of(SIX, tmp_path)
    shards = shards_of(module)
    whole = torch.arange(36.0, device="cpu").view(6, 6)
    with pytest.raises(ValueError, match="source shard") as caught:
        module.reshard_local([*shards[:4], whole, shards[5]])
    assert str(caught.value) == (
        "source shard of device 4, x[3:6, 2:4] of a whole x: got (6, 6) of torch.float32, "
        "expected (3, 2) of torch.float32"
    )
    assert module.source_box(4) == (3, 6, 2, 4)


def test_a_dtensor_is_sent_to_its_own_door(tmp_path: Path) -> None:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Shard

    module, _ = module_of(SIX, tmp_path)
    shards = shards_of(module)
    mesh = DeviceMesh("cpu", torch.arange(6).view(2, 3), _init_backend=False, _rank=0)
    given = DTensor.from_local(shards[0], mesh, [Shard(0), Shard(1)], run_check=False)
    with pytest.raises(ValueError, match="source shard") as caught:
        module.reshard_local([given, *shards[1:]])
    assert str(caught.value) == (
        "source shard of device 0, x[0:3, 0:2] of a whole x: got a DTensor, expected its "
        "to_local(), or use reshard_dtensor"
    )


@pytest.mark.parametrize("split", ["flat", "nested"])
def test_shards_of_the_other_split_are_recognised(split: str, tmp_path: Path) -> None:
    """5 rows over 2 x 2: 2, 2, 1 and none as JAX has them, 2, 1, 1 and 1 as torch."""
    mesh = Mesh({"x": 2, "y": 2})
    sides = mesh.sharding('[{"x", "y"}, {}]'), mesh.sharding("[{}, {}]")
    module, _ = module_of(Reshard((5, 3), "float32", *sides, split), tmp_path)
    other = {"flat": (2, 1, 1, 1), "nested": (2, 2, 1, 0)}[split]
    part = {"flat": "2:4", "nested": "2:3"}[split]
    with pytest.raises(ValueError, match="source shard") as caught:
        module.reshard_local([torch.zeros(rows, 3, device="cpu") for rows in other])
    assert str(caught.value) == (
        f"source shard of device 1, x[{part}, 0:3] of a whole x (a Reshard with "
        "source_split nested splits as torch does, with flat as JAX does): "
        f"got ({other[1]}, 3) of torch.float32, "
        f"expected ({3 - other[1]}, 3) of torch.float32"
    )
