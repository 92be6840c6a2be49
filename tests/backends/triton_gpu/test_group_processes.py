"""Groups over twelve processes: a trainer and a server apart and overlapping, and gradients."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from commands import ok
from gloo_group import run_group
from test_gpu_processes import sides

from shardwright.codegen.checks.case import placement
from shardwright.codegen.checks.oracle import definition as oracle
from shardwright.codegen.spec.config import read_config
from shardwright.ir import Reshard

pytest.importorskip("torch")
pytest.importorskip("triton")

WORLD = 12
CONFIG = """\
[defaults]
dtype = "bfloat16"
backends = ["triton_gpu"]
[mesh]
trainer = "fsdp=4,tp=2"
server = '<["tp"=4], device_ids=[10, 8, 11, 9]>'
among = '<["tp"=4, "r"=2], device_ids=[9, 2, 3, 0, 8, 11, 10, 5]>'
whole = "fsdp=4,tp=3"
within = '<["tp"=12], device_ids=[11, 10, 9, 8, 0, 1, 2, 3, 4, 5, 6, 7]>'

[[group]]
name = "apart"
mesh = "trainer"
target_mesh = "server"
tensors = [
  {name = "a.wq", shape = [64, 48], source = '[{"fsdp", "tp"}, {}]', target = '[{}, {"tp"}]'},
  {name = "a.wk", shape = [64, 48], source = '[{"fsdp", "tp"}, {}]', target = '[{}, {"tp"}]'},
  {name = "a.wo", shape = [31, 50], source = '[{"fsdp"}, {"tp"}]', target = '[{"tp"}, {}]'},
  {name = "a.norm", shape = [61], source = '[{"fsdp"}]', target = '[{}]', dtype = "float32"},
  {name = "a.step", shape = [], source = '[]', target = '[]', dtype = "int32"},
]

[[group]]
name = "overlapping"
mesh = "trainer"
target_mesh = "among"
tensors = [
  {name = "o.wq", shape = [64, 48], source = '[{"fsdp", "tp"}, {}]', target = '[{}, {"tp"}]'},
  {name = "o.wo", shape = [31, 24], source = '[{"fsdp"}, {"tp"}]', target = '[{"tp", "r"}, {}]'},
  {name = "o.mask", shape = [9, 7], source = '[{"tp"}, {}]', target = '[{}, {"r"}]', \
dtype = "bool"},
]

[[group]]
name = "same"
mesh = "whole"
target_mesh = "within"
dtype = "float32"
gradient = true
tensors = [
  {name = "s.wq", shape = [48, 36], source = '[{"fsdp"}, {"tp"}]', target = '[{}, {"tp"}]'},
  {name = "s.ids", shape = [24], source = '[{"fsdp"}]', target = '[{"tp"}]', dtype = "int32"},
  {name = "s.norm", shape = [61], source = '[{"fsdp", "tp"}]', target = '[{"tp"}]'},
]
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the groups of the config."""
    folder = tmp_path_factory.mktemp("groups")
    (folder / "shardwright.toml").write_text(CONFIG)
    ok("emit", folder / "shardwright.toml")
    return folder


def members(home: Path, name: str) -> dict[str, Reshard]:
    """The reshards of a group, by the names of its tensors."""
    config = read_config(home / "shardwright.toml").select([name])
    return {each.name: each.reshard() for each in config.reshards}


def received(home: Path, name: str) -> tuple[int, int]:
    """The bytes that the plan of a group says: of the busiest device, and of all."""
    found = json.loads(ok("plan", home / "shardwright.toml", name, "--json"))["bytes"]
    return found["received_max"], found["received_total"]


@pytest.mark.parametrize(("name", "interpreted"), [("apart", "1"), ("overlapping", "0")])
def test_weights_to_a_server(name: str, interpreted: str, home: Path, tmp_path: Path) -> None:
    """Bitwise right, in one exchange of the bytes of the plan; a rank outside the trainer gives
    None in place of all tensors, one outside the server gets a None for each."""
    each = {member: sides(reshard) for member, reshard in members(home, name).items()}
    case = {"task": "synced", "module": str(home / "generated" / name / "triton_gpu.py")}
    case["members"] = {member: source for member, (source, _) in each.items()}
    ranks = run_group(WORLD, [case], tmp_path, interpreted=interpreted == "1")
    received_by = np.zeros(WORLD, int)
    for (rank,) in ranks:
        wanted = {member: target.get(rank["device"]) for member, (_, target) in each.items()}
        assert rank["results"] == wanted
        assert rank["gave"] is (rank["device"] < 8)
        (sent,) = rank["sent"]
        received_by += sent
    assert (received_by.max(), received_by.sum()) == received(home, name)


def test_gradients_go_back(home: Path, tmp_path: Path) -> None:
    """Of each float tensor the elements that its results were multiplied by; in one exchange."""
    weights, held = {}, {}
    for number, (member, reshard) in enumerate(members(home, "same").items()):
        whole = np.arange(np.prod(reshard.shape), dtype=np.float32) + 1000 * number
        weights[member] = whole.reshape(reshard.shape).view(np.uint32)
        there = oracle.shards(placement(reshard.target, "flat"), weights[member])
        held[member] = {str(device): bits.tobytes().hex() for device, bits in there.items()}
    case = {"task": "group_gradients", "weights": held}
    case["module"] = str(home / "generated" / "same" / "triton_gpu.py")
    ranks = run_group(WORLD, [case], tmp_path)
    for member, reshard in members(home, "same").items():
        wanted = oracle.shards(placement(reshard.source, "flat"), weights[member])
        for (rank,) in ranks:
            found = rank["gradients"][member]
            if reshard.dtype == "int32":
                assert found is None
                continue
            assert found == wanted[rank["device"]].tobytes().hex(), (member, rank["device"])
    assert all(rank["exchanges"] == 2 for (rank,) in ranks)
