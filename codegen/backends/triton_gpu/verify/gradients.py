"""Check the gradient of a reshard between processes. Imported only by workers."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from shardwright.codegen.backends.triton_gpu.verify.bits import to_torch
from shardwright.codegen.backends.triton_gpu.verify.ranks import Rank, Ranks
from shardwright.codegen.backends.triton_gpu.verify.stand_ins import StandIns
from shardwright.codegen.backends.triton_gpu.verify.values import Values

CALLS = 2


def check_gradients(module: Any, values: Values) -> None:
    """Compute gradients on all ranks, if both meshes have the same devices. Raises MismatchError
    for wrong values."""
    host = module._HOST
    if {*host.exchange.source.ids} != {*host.exchange.target.ids}:
        return
    # Load the backward module and its imports before stand-ins replace names in loaded modules.
    assert host.gradient.reverse._HOST.processes is not None
    for on_gpus, transport in ((False, "exchange"), (True, "symmetric")):
        ranks = Ranks(len(host.exchange.ranks), noted=False)
        with StandIns(ranks, on_gpus=on_gpus).of(module):
            ranks.run(partial(_back, module, values, transport))


def _back(module: Any, values: Values, transport: str, rank: Rank) -> None:
    device, dtype = values.case.devices()[rank.number], values.case.dtype
    for call in range(CALLS):
        shard = to_torch(values.given(call)[device], dtype).requires_grad_()
        y = module.reshard(shard, rank, transport=transport)
        given = to_torch(values.wanted(call)[device], dtype)
        (found,) = torch.autograd.grad(y, shard, given)
        whole, wanted = values.cotangents(call)
        rank.read(found, wanted[device], whole, f"device {device}, the derivative")
