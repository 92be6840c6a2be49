"""Reshards of DTensors, where their placements can say both shardings."""

import torch
import torch.distributed as dist


class DTensors:
    """A reshard whose sides are placements: `before` and `after` have for each axis of the source
    and target mesh the dimension that it splits, None where it replicates, the operator where it is
    unreduced; `shapes`: those of the meshes."""

    def __init__(self, own, before, after, shapes):
        self._own, self._shapes, self._dims = own, shapes, (before, after)

    def reshard(self, x, target_mesh=None, group=None, *, transport=None):
        """Return what `reshard` makes of a DTensor.

        `target_mesh` is the DeviceMesh of the result, None that of `x`. Raises ValueError for
        another shape, other placements or other devices, and as `reshard` does.
        """
        from torch.distributed.tensor import DTensor  # slow: when it is used

        own, shape = self._own, self._own.shape
        if not isinstance(x, DTensor):
            raise ValueError(f"got {type(x).__name__}, expected a DTensor")
        before, after = (tuple(map(_placement, dims)) for dims in self._dims)
        group = dist.group.WORLD if group is None else group
        target_mesh = x.device_mesh if target_mesh is None else target_mesh
        if tuple(x.shape) != shape or tuple(x.placements) != before:
            got = f"got {tuple(x.shape)} placed {tuple(x.placements)}"
            raise ValueError(f"{got}, expected {shape} placed {before}")
        self._check_mesh(x.device_mesh, self._shapes[0], own.exchange.source.ids, group, "source")
        self._check_mesh(target_mesh, self._shapes[1], own.exchange.target.ids, group, "target")
        inside = x.device_mesh.get_coordinate() is not None
        shard = x.to_local().resolve_neg().contiguous() if inside else None
        moved = own.reshard(shard, group, transport=transport)
        nothing = torch.empty(0, dtype=own.dtype, device=target_mesh.device_type)
        local = nothing if moved is None else moved
        stride = torch.empty(shape, device="meta").stride()
        whole = {"shape": torch.Size(shape), "stride": stride}
        return DTensor.from_local(local, target_mesh, after, run_check=False, **whole)

    def _check_mesh(self, mesh, shape, ids, group, side):
        """Raise ValueError unless a DeviceMesh has the plan's shape and devices."""
        ranks, members = self._own.exchange.ranks, dist.get_process_group_ranks(group)
        if len(members) != len(ranks):
            raise ValueError(f"group of {len(members)} ranks, expected {len(ranks)}")
        wanted = torch.tensor([members[ranks.index(device)] for device in ids], device="cpu")
        wanted = wanted.view(shape).tolist()
        if mesh.mesh.tolist() != wanted:
            raise ValueError(f"{side} mesh: got {mesh.mesh.tolist()}, expected {wanted}")


def _placement(placed):
    """Return what an axis does as a placement of torch's."""
    from torch.distributed.tensor import Partial, Replicate, Shard

    if placed is None:
        return Replicate()
    return Shard(placed) if isinstance(placed, int) else Partial(placed)
