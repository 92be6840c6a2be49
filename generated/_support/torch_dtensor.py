"""Reshards of DTensors, for shardings that placements can express."""

import math

import torch
import torch.distributed as dist

from .torch_processes import Asked
from .torch_symmetric import in_a_line


class DTensors:
    """A reshard `own` between placements. `before` has one entry for each axis of the source mesh,
    `after` one for each axis of the target mesh: the dimension that the axis splits, a pair of that
    dimension and a split factor, None for a replicated axis, or the operator of an unreduced axis;
    `shapes`: the shapes of both meshes."""

    def __init__(self, own, before, after, shapes):
        self._own, self._shapes, self._dims = own, shapes, (before, after)

    def reshard(self, x, target_mesh=None, group=None, *, transport=None, check=False):
        """Return the resharded DTensor.

        `target_mesh` is the DeviceMesh of the result, by default the mesh of `x`; `transport` and
        `check` are as for `reshard`. Raises ValueError for a wrong shape, wrong placements or wrong
        devices, and otherwise the same errors on the same ranks as `reshard`.
        """
        from torch.distributed.tensor import DTensor  # slow: imported on first use

        own, group = self._own, dist.group.WORLD if group is None else group
        target_mesh = getattr(x, "device_mesh", None) if target_mesh is None else target_mesh
        try:
            shard, after = self._shard(x, target_mesh, group)
        except Exception as error:  # all ranks must learn of the error
            if group is None:
                raise
            asked = Asked(transport, check)
            return own.processes.reshard([None], group, None, asked, fault=in_a_line(error))
        moved = own.reshard(shard, group, transport=transport, check=check)
        empty = (0,) if own.shape else ()  # see `_shard`
        nothing = torch.empty(empty, dtype=own.dtype, device=target_mesh.device_type)
        local = nothing if moved is None else moved
        stride = torch.empty(own.shape, device="meta").stride()
        whole = {"shape": torch.Size(own.shape), "stride": stride}
        return DTensor.from_local(local, target_mesh, after, run_check=False, **whole)

    def _shard(self, x, target_mesh, group):
        """Return the local shard of a DTensor, None outside its mesh, and the placements of the
        result. Raises ValueError for a DTensor or target mesh that is not the plan's."""
        from torch.distributed.tensor import DTensor

        own, shape = self._own, self._own.shape
        if not isinstance(x, DTensor):
            hint = "for the shard of this rank, call reshard"
            raise ValueError(f"got {type(x).__name__}, expected a DTensor; {hint}")
        before, after = (tuple(map(_placement, dims)) for dims in self._dims)
        # `from_local` gives a scalar the shape of its local tensor: (0,) on a rank without a shard.
        if tuple(x.shape) not in (shape, shape or (0,)) or _placements(x) != before:
            got = f"got {tuple(x.shape)} placed {_placements(x)}"
            raise ValueError(f"{got}, expected {shape} placed {before}")
        self._check_mesh(x.device_mesh, self._shapes[0], own.exchange.source.ids, group, "source")
        self._check_mesh(target_mesh, self._shapes[1], own.exchange.target.ids, group, "target")
        inside = x.device_mesh.get_coordinate() is not None
        # With a `shard_order`, to_local() alone would give the gradient a different order.
        given = x.to_local(grad_placements=tuple(map(_of_gradient, before)))
        return given.resolve_neg().contiguous() if inside else None, after

    def _check_mesh(self, mesh, shape, ids, group, side):
        """Raise ValueError unless a DeviceMesh has the shape and devices of the plan."""
        ranks, members = self._own.exchange.ranks, dist.get_process_group_ranks(group)
        if len(members) != len(ranks):
            raise ValueError(f"group of {len(members)} ranks, expected {len(ranks)}")
        wanted = torch.tensor([members[ranks.index(device)] for device in ids], device="cpu")
        wanted = wanted.view(shape).tolist()
        if mesh.mesh.tolist() != wanted:
            raise ValueError(f"{side} mesh: got {mesh.mesh.tolist()}, expected {wanted}")


def _placements(x):
    """Return the placements of a DTensor. An axis that splits a dimension after a later axis of the
    mesh, as a `shard_order` (torch 2.13) may state, gets a strided placement."""
    placed = list(x.placements)
    for dim, axes in getattr(x._spec, "shard_order", None) or ():
        for number, axis in enumerate(axes):
            factor = math.prod(x.device_mesh.shape[i] for i in axes[:number] if i > axis)
            placed[axis] = _placement((dim, factor)) if factor > 1 else placed[axis]
    return tuple(placed)


def _of_gradient(placement):
    """Return the placement of a gradient; replicated for a partial sum, because its terms have
    equal gradients."""
    return _placement(None) if placement.is_partial() else placement


def _placement(placed):
    """Return the torch placement for an element of `before` or `after`."""
    from torch.distributed.tensor import Partial, Replicate, Shard
    from torch.distributed.tensor.placement_types import _StridedShard

    if placed is None:
        return Replicate()
    if isinstance(placed, tuple):
        return _StridedShard(placed[0], split_factor=placed[1])
    return Shard(placed) if isinstance(placed, int) else Partial(placed)
