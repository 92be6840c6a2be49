"""Check that an emitted module reshards DTensors, and that ranks have the shards that torch
expects.

Imported only by workers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch.distributed.device_mesh import DeviceMesh

from shardwright.codegen.backends.triton_gpu.verify.calls import CallerTensors, judged, written
from shardwright.codegen.backends.triton_gpu.verify.ranks import Rank, Ranks
from shardwright.codegen.backends.triton_gpu.verify.stand_ins import StandIns
from shardwright.codegen.backends.triton_gpu.verify.values import Values
from shardwright.codegen.checks.compare import MismatchError, expect
from shardwright.codegen.checks.oracle import definition as oracle
from shardwright.codegen.checks.oracle.definition import Placement

CALLS = 2


def check_dtensors(module: Any, values: Values) -> tuple[str, ...]:
    """Reshard DTensors and return the name of the check, or nothing if the module does not support
    them. Raises MismatchError for wrong values, and for placements that contradict the ranks'
    shards."""
    if "reshard_dtensor" not in module.__all__:
        return ()
    ranks = Ranks(len(module._HOST.exchange.ranks), noted=False)
    with StandIns(ranks, on_gpus=False).of(module):
        ranks.run(lambda rank: _reshard(module, values, rank))
    return ("DTensors",)


def _reshard(module: Any, values: Values, rank: Rank) -> None:
    from torch.distributed.tensor import DTensor  # slow, so imported only where it is used

    case, shards = values.case, CallerTensors(module._HOST, rank)
    source, target = (_mesh(side, rank, case.devices()) for side in (case.source, case.target))
    whole = torch.empty(case.shape, device="meta")
    for call in range(CALLS):
        shard = shards.source()
        written(rank, shard, values, call)
        x = DTensor.from_local(
            torch.empty(0, dtype=module._HOST.dtype) if shard is None else shard,
            source,
            placements(case.source),
            run_check=False,
            shape=whole.shape,
            stride=whole.stride(),
        )
        to = None if source.mesh.equal(target.mesh) and not call else target
        y = module.reshard_dtensor(x, to, rank, transport="exchange")
        device = case.devices()[rank.number]
        expect("mesh of the DTensor", y.device_mesh.mesh.tolist(), target.mesh.tolist())
        expect("shape and dtype of the DTensor", (y.shape, y.dtype), (whole.shape, x.dtype))
        if device in case.target.device_ids:
            _check_held(case.target, case.shape, device, y)
        judged(rank, y.to_local() if shards.is_target else None, values, call)


def placements(side: Placement) -> list[Any]:
    """Return a sharding over whole axes as placements, one per mesh axis. An axis that splits a
    dimension after a later axis has a strided placement."""
    from torch.distributed.tensor import Partial, Replicate, Shard
    from torch.distributed.tensor.placement_types import _StridedShard

    order, found = _names(side.axes), list[Any]()
    for place, name in enumerate(order):
        if name in _names(side.unreduced):
            found.append(Partial(side.operator))
            continue
        split = [(dim, _names(refs)) for dim, refs in enumerate(side.dims) if name in _names(refs)]
        if not split:
            found.append(Replicate())
            continue
        ((dim, names),) = split
        before = [other for other in names[: names.index(name)] if order.index(other) > place]
        factor = math.prod(dict(side.axes)[other] for other in before)
        found.append(_StridedShard(dim, split_factor=factor) if factor > 1 else Shard(dim))
    return found


def _names(refs: Any) -> list[str]:
    return [name for name, *_ in refs]


def _mesh(side: Placement, rank: Rank, devices: tuple[int, ...]) -> Any:
    numbers = torch.tensor([devices.index(device) for device in side.device_ids])
    sizes = [size for _, size in side.axes]
    return DeviceMesh("cpu", numbers.view(sizes), _init_backend=False, _rank=rank.number)


def _check_held(side: Placement, shape: tuple[int, ...], device: int, y: Any) -> None:
    from torch.distributed.tensor import Partial
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    local, offset = compute_local_shape_and_global_offset(shape, y.device_mesh, y.placements)
    held = oracle.holdings(side, shape)[device]
    if not np.array_equal(local, [*map(len, held)]) or (
        math.prod(local) and not np.array_equal(offset, [along[0] for along in held])
    ):
        raise MismatchError(f"device {device} does not hold the elements of {y.placements}")
    partial = [name for (name, _), p in zip(side.axes, y.placements, strict=True)
               if isinstance(p, Partial) and p.reduce_op == side.operator]  # fmt: skip
    expect(
        "axes along which the DTensor is partial", sorted(partial), sorted(_names(side.unreduced))
    )
