"""Gradients of what goes to other devices: autograd cannot, the way back by hand does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import ok
from gloo_group import run_group

from shardwright.codegen.checks.case import placement
from shardwright.codegen.checks.oracle import definition as oracle
from shardwright.codegen.spec.config import read_config

pytest.importorskip("torch")
pytest.importorskip("triton")

CONFIG = """\
[defaults]
dtype = "float32"
backends = ["triton_gpu"]
gradient = true
[mesh]
trainer = "x=2"
server = '<["y"=2], device_ids=[1, 2]>'

[[reshard]]
name = "alone"
mesh = "trainer"
target_mesh = "server"
shape = [6, 5]
source = '[{"x"}, {}]'
target = '[{}, {"y"}]'

[[group]]
name = "weights"
mesh = "trainer"
target_mesh = "server"
tensors = [
  {name = "wq", shape = [6, 4], source = '[{"x"}, {}]', target = '[{}, {"y"}]'},
  {name = "norm", shape = [5], source = '[{"x"}]', target = '[{"y"}]'},
]

[[group]]
name = "gradients"
mesh = "server"
target_mesh = "trainer"
gradient = false
tensors = [
  {name = "wq_back", shape = [6, 4], source = '[{}, {"y"}]', target = '[{"x"}, {}]'},
  {name = "norm_back", shape = [5], source = '[{"y"}]', target = '[{"x"}]'},
]
"""
SAID = (
    "source shard of device {} requires a gradient, but some devices are in one mesh only, and "
    "autograd skips the backward pass of a rank without a result: call this in torch.no_grad(), "
    "and send gradients back by the reverse reshard (docs/groups.md, Gradients)"
)


def test_gradients_come_back_by_hand(tmp_path: Path) -> None:
    (tmp_path / "shardwright.toml").write_text(CONFIG)
    ok("emit", tmp_path / "shardwright.toml")
    made = tmp_path / "generated"
    cases: list[dict[str, Any]] = [
        {"module": "alone/triton_gpu", "back": "alone/triton_gpu_backward"},
        {"module": "weights/triton_gpu", "back": "gradients/triton_gpu"},
    ]
    wanted = []
    for case, name in zip(cases, ("alone", "weights"), strict=True):
        case |= {key: str(made / f"{path}.py") for key, path in case.items()}
        case["task"], case["weights"], back = "gloo_gradients:by_hand", {}, {}
        for each in read_config(tmp_path / "shardwright.toml").select([name]).reshards:
            reshard, member = each.reshard(), "" if name == "alone" else each.name
            bits = np.arange(np.prod(reshard.shape), dtype=np.float32).view(np.uint32)
            there, here = (
                oracle.shards(placement(side, "flat"), bits.reshape(reshard.shape))
                for side in (reshard.target, reshard.source)
            )
            case["weights"][member] = {str(d): part.tobytes().hex() for d, part in there.items()}
            back[member] = {device: part.tobytes().hex() for device, part in here.items()}
        wanted.append(back)
    for rank in run_group(3, cases, tmp_path):
        for answer, back in zip(rank, wanted, strict=True):
            found = {name: shards.get(answer["device"]) for name, shards in back.items()}
            assert answer["gradients"] == found
            assert SAID.format(0) in answer["said"]
