"""Checks of the tensors that callers pass as `out`."""

from .torch_tensors import check


def overlap(one, other):
    """Return whether two contiguous tensors share an element."""
    first, second = sorted((one, other), key=lambda tensor: tensor.data_ptr())
    nearer = first.numel() and second.numel() and first.device == second.device
    return bool(nearer) and first.data_ptr() + first.nbytes > second.data_ptr()


def checked(move, out, ids, homes, shards):
    """Return `out`, the tensors to fill in the order of `ids`. Raise ValueError unless each
    tensor is on its device in `homes` and can be written while `shards` are read."""
    if len(out) != len(ids):
        raise ValueError(f"got {len(out)} tensors in out, expected {len(ids)}")
    for number, (each, device_id, home) in enumerate(zip(out, ids, homes, strict=True)):
        check_out(move, each, device_id, home, shards)
        if any(overlap(each, other) for other in out[:number]):
            raise ValueError(f"out of device {device_id}: shares memory with another tensor of out")
    return out


def check_out(move, out, device_id, home, shards):
    """Raise ValueError unless a result can be written to `out` while `shards` are read."""
    what = f"out of device {device_id}"
    check(out, move.target_shape(device_id), move.dtype, what)
    if out.device != home:
        raise ValueError(f"{what}: got a tensor on {out.device}, expected one on {home}")
    if any(overlap(out, shard) for shard in shards):
        raise ValueError(f"{what}: shares memory with a source shard, which other devices read")
    if out.requires_grad:
        raise ValueError(f"{what}: got a tensor that requires a gradient, expected its detach()")
