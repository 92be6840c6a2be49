"""Reshards bfloat16[8, 6] over 4 devices: [{"x"}, {"y"}] -> [{"x"}, {"y"}].

Source: [{"x"}, {"y"}] on <["x"=2, "y"=2]>, shards of 4 x 3.
    d1(x, y)[k0, k1] -> t[x * 4 + k0, y * 3 + k1]
Target: [{"x"}, {"y"}] on <["x"=2, "y"=2]> (device ids below), shards of 4 x 3.
    d2(x, y)[k0, k1] -> t[x * 4 + k0, y * 3 + k1]

Tiles are the intersections of source and target shards. Along dimension
    0: shards of 4 meet shards of 4, the cuts repeat every 4, starts are multiples of 4
    1: shards of 3 meet shards of 3, the cuts repeat every 3, starts are multiples of 3
Each tile has one holder, which sends it.

Bytes received: 24 by the busiest device (the least possible is 24), 96 in all.
Bytes sent: 24 by the busiest device (the least possible is 24).

    device  source           target
    0       [0, 4) x [0, 3)  [4, 8) x [3, 6)
    1       [0, 4) x [3, 6)  [4, 8) x [0, 3)
    2       [4, 8) x [0, 3)  [0, 4) x [3, 6)
    3       [4, 8) x [3, 6)  [0, 4) x [0, 3)

Made by
    shardwright emit --mesh x=2,y=2 --shape 8x6 --dtype bfloat16 --source '[{"x"}, {"y"}]' --target '[{"x"}, {"y"}]' --target-mesh '<["x"=2, "y"=2], device_ids=[3, 2, 1, 0]>' --name reversed_devices -o generated

Tested with triton 3.9.0 and torch 2.13.0.
"""

import contextlib
import functools
import itertools
import math
import os

if __name__ == "__main__":
    os.environ.setdefault("TRITON_INTERPRET", "1")

import torch
import torch.distributed as dist
import triton
import triton.language as tl

__all__ = [
    "DTYPE",
    "LOCAL_SOURCE_SHAPE",
    "LOCAL_TARGET_SHAPE",
    "SHAPE",
    "SOURCE",
    "SOURCE_MESH",
    "TARGET",
    "TARGET_MESH",
    "reshard",
    "reshard_local",
    "source_shape",
    "target_shape",
]

SHAPE = (8, 6)
DTYPE = "bfloat16"
SOURCE_MESH = '<["x"=2, "y"=2]>'
TARGET_MESH = '<["x"=2, "y"=2], device_ids=[3, 2, 1, 0]>'
SOURCE = '[{"x"}, {"y"}]'
TARGET = '[{"x"}, {"y"}]'
LOCAL_SOURCE_SHAPE = (4, 3)
LOCAL_TARGET_SHAPE = (4, 3)

# Device ids by mesh position.
SOURCE_IDS = range(4)
TARGET_IDS = (3, 2, 1, 0)
RANKS = sorted({*SOURCE_IDS, *TARGET_IDS})

# A program copies one block of this shape out of a tile; a tile has at most BLOCKS of them.
BLOCK = (4, 4)
BLOCKS = 1
# A tile is cut into so many pieces, to share the sending among its holders.
PIECES = 1


@triton.jit
def source_shard(position):
    """Index of the source shard, per dimension, at a position of the source mesh."""
    return position // 2, position % 2


@triton.jit
def target_shard(position):
    """Index of the target shard, per dimension, at a position of the target mesh."""
    return position // 2, position % 2


@triton.jit
def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position // 2 * 4
    lo1 = position % 2 * 3
    return lo0, lo0 + 4, lo1, lo1 + 3


@triton.jit
def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = position // 2 * 4
    lo1 = position % 2 * 3
    return lo0, lo0 + 4, lo1, lo1 + 3


@triton.jit
def source_range(a0, a1):
    """Tensor range (low, high), per dimension, of a source shard."""
    lo0 = a0 * 4
    lo1 = a1 * 3
    return lo0, lo0 + 4, lo1, lo1 + 3


@triton.jit
def tile(a0, a1, b0, b1):
    """Tensor range shared by a source shard and a target shard; empty where low >= high."""
    source_lo0 = a0 * 4
    target_lo0 = b0 * 4
    source_lo1 = a1 * 3
    target_lo1 = b1 * 3
    return (
        max(source_lo0, target_lo0),
        min(source_lo0 + 4, target_lo0 + 4),
        max(source_lo1, target_lo1),
        min(source_lo1 + 3, target_lo1 + 3),
    )


@triton.jit
def senders(position):
    """First and count, per dimension, of the source shards that meet a target shard."""
    first0 = position // 2
    first1 = position % 2
    return first0, 1, first1, 1


@triton.jit
def receivers(position):
    """First and count, per dimension, of the target shards that meet a source shard."""
    first0 = position // 2
    first1 = position % 2
    return first0, 1, first1, 1


@triton.jit
def target_position(b0, b1, replica):
    """Position, in the target mesh, of a replica of a target shard."""
    return b0 * 2 + b1


@triton.jit
def holder(a0, a1, receiver):
    """Position, in the source mesh, of the holder that sends a piece of a tile to a receiver."""
    return a0 * 2 + a1


@triton.jit
def pull_kernel(
    peers,  # int64 [source positions]: the address, a multiple of 16, of every source shard
    out,  # the target shard
    receiver,  # position of this device in the target mesh
    me,  # its position in the source mesh, -1 if it is not in it
    BLOCKS: tl.constexpr,
    PIECES: tl.constexpr,
    BLOCK0: tl.constexpr,
    BLOCK1: tl.constexpr,
):
    """Copies one block of one tile: one base pointer, contiguous rows, no division an element."""
    block = tl.program_id(0) % BLOCKS
    number = tl.program_id(0) // BLOCKS
    # The source shard this program reads, and the tile it shares with the target shard.
    first0, count0, first1, count1 = senders(receiver)
    a1 = first1 + number % count1
    number = number // count1
    a0 = first0 + number
    b0, b1 = target_shard(receiver)
    lo0, hi0, lo1, hi1 = tile(a0, a1, b0, b1)
    sender = holder(a0, a1, receiver)
    # The block within the tile, minor dimension first.
    blocks1 = tl.cdiv(hi1 - lo1, BLOCK1)
    at1 = lo1 + block % blocks1 * BLOCK1
    block = block // blocks1
    blocks0 = tl.cdiv(hi0 - lo0, BLOCK0)
    if block >= blocks0:
        return
    at0 = lo0 + block * BLOCK0
    # Where the block stands in the two shards, each contiguous in its exact shape.
    from0, from_end0, from1, from_end1 = source_range(a0, a1)
    to0, to_end0, to1, to_end1 = target_box(receiver)
    read = at0 - from0
    write = at0 - to0
    read = read * (from_end1 - from1) + at1 - from1
    write = write * (to_end1 - to1) + at1 - to1
    # Source shards start at multiples of 16 bytes: Triton reads as many at once where tiles do too.
    source = tl.load(peers + sender).to(tl.pointer_type(tl.int16))
    source = tl.multiple_of(source, 16)
    column = tl.arange(0, BLOCK1)
    row = tl.arange(0, BLOCK0)[:, None]
    column = column[None, :]
    inside = row < hi0 - at0
    inside = inside & (column < hi1 - at1)
    read = read + row * (from_end1 - from1)
    write = write + row * (to_end1 - to1)
    values = tl.load(source + read + column, mask=inside)
    tl.store(out + write + column, values, mask=inside)


def source_shape(device_id):
    """Exact shape of the source shard on a device."""
    return _shape(source_box.fn(_position(SOURCE_IDS, device_id, "source")))


def target_shape(device_id):
    """Exact shape of the target shard on a device."""
    return _shape(target_box.fn(_position(TARGET_IDS, device_id, "target")))


def _shape(box):
    return tuple(high - low for low, high in zip(box[::2], box[1::2], strict=True))


def _position(ids, device_id, side):
    if device_id not in ids:
        raise ValueError(f"device {device_id}: expected one of the {side} mesh, {list(ids)}")
    return ids.index(device_id)


def _source_position(device_id):
    """Position in the source mesh, -1 for a device that is not in it."""
    return SOURCE_IDS.index(device_id) if device_id in SOURCE_IDS else -1


def _check(shard, device_id):
    shape, dtype = source_shape(device_id), torch.bfloat16
    if tuple(shard.shape) != shape or shard.dtype != dtype:
        raise ValueError(
            f"source shard of device {device_id}: got {tuple(shard.shape)} of {shard.dtype}, "
            f"expected {shape} of {dtype}"
        )
    if not shard.is_contiguous():
        raise ValueError(f"source shard of device {device_id}: expected a contiguous tensor")


@torch.no_grad()
def reshard_local(shards):
    """The target shards, from source shards that one address space holds.

    `shards`: contiguous tensors of shape `source_shape(id)`, sorted by device id of the source
    mesh. Returns new tensors of shape `target_shape(id)`, sorted by device id of the target mesh,
    each on the device of the source shard of its id, else of the first position's. They carry no
    gradient. Raises ValueError for a wrong number of shards, a wrong shape, dtype or device.
    """
    if len(shards) != len(SOURCE_IDS):
        raise ValueError(f"got {len(shards)} source shards, expected {len(SOURCE_IDS)}")
    held = dict(zip(sorted(SOURCE_IDS), shards, strict=True))
    for device_id, shard in held.items():
        _check(shard, device_id)
    by_position = [_aligned(held[device_id]) for device_id in SOURCE_IDS]
    homes = {shard.device for shard in shards}
    if len({home.type for home in homes}) > 1:
        raise ValueError(
            f"source shards on {sorted(map(str, homes))}, expected all on GPUs or all on the CPU"
        )
    for reader, owner in itertools.permutations(homes, 2):
        _let_read(reader, owner)
    _join_streams(homes)
    outputs = []
    for device_id in sorted(TARGET_IDS):
        home = held.get(device_id, by_position[0]).device
        out = torch.empty(target_shape(device_id), dtype=torch.bfloat16, device=home)
        _pull(by_position, out, TARGET_IDS.index(device_id), _source_position(device_id))
        outputs.append(out)
    _join_streams(homes)
    return outputs


def _aligned(shard):
    """The shard, copied if it starts where the kernel cannot read 16 bytes at once."""
    return shard if shard.data_ptr() % 16 == 0 else shard.clone()


@functools.cache
def _let_read(reader, owner):
    """Lets kernels on one GPU read the memory of another.

    A kernel faults on a peer's memory until its access is enabled; torch enables that of the GPU
    that copies, which for copies between GPUs is the source.
    """
    if not torch.cuda.can_device_access_peer(reader, owner):
        raise ValueError(f"{reader} cannot read the memory of {owner}: use `reshard`")
    torch.empty(1, device=owner).copy_(torch.empty(1, device=reader))


def _join_streams(devices):
    """Makes the current stream of every GPU wait for those of the others."""
    gpus = [device for device in devices if device.type == "cuda"]
    if len(gpus) < 2:
        return
    events = [torch.cuda.current_stream(gpu).record_event() for gpu in gpus]
    for gpu in gpus:
        for event in events:
            torch.cuda.current_stream(gpu).wait_event(event)


def _pull(shards, out, receiver, me):
    """Fills a target shard from the source shards, listed by source position."""
    if out.numel() == 0:
        return
    if out.device.type == "cpu" and isinstance(pull_kernel, triton.JITFunction):
        _pull_slices(shards, out, receiver, me)
        return
    addresses = [shard.data_ptr() for shard in shards]
    peers = torch.tensor(addresses, dtype=torch.int64, device=out.device)
    flat = out.view(-1).view(torch.int16)
    grid = (math.prod(senders.fn(receiver)[1::2]) * PIECES * BLOCKS,)
    with torch.cuda.device(out.device) if out.is_cuda else contextlib.nullcontext():
        pull_kernel[grid](peers, flat, receiver, me, BLOCKS, PIECES, *BLOCK[-2:])


def _pull_slices(shards, out, receiver, me):
    """The same on CPU tensors outside Triton's interpreter: torch copies of the same tiles."""
    for sender, box in _incoming(receiver, me):
        read = _at(shards[sender], source_box.fn(sender), box)
        _at(out, target_box.fn(receiver), box).copy_(read)


def _incoming(receiver, me):
    """(source position, box) of every piece of a target shard; the own copy comes from `me`."""
    own = source_shard.fn(me) if me >= 0 else None
    for shard in itertools.product(*_ranges(senders.fn(receiver))):
        box = tile.fn(*shard, *target_shard.fn(receiver))
        if shard == own:
            yield from ((me, part) for part in _full(box))
            continue
        for piece in range(PIECES):
            for part in _full(_piece(box, piece)):
                yield holder.fn(*shard, receiver), part


def _outgoing(me):
    """(target position, box) of every piece that the device at a source position sends."""
    own = source_shard.fn(me)
    replicas = range(1)
    for *shard, replica in itertools.product(*_ranges(receivers.fn(me)), replicas):
        receiver = target_position.fn(*shard, replica)
        position = _source_position(TARGET_IDS[receiver])
        if position >= 0 and source_shard.fn(position) == own:
            continue
        for piece in range(PIECES):
            if holder.fn(*own, receiver) == me:
                for part in _full(_piece(tile.fn(*own, *shard), piece)):
                    yield receiver, part


def _ranges(counted):
    return [range(first, first + n) for first, n in zip(counted[::2], counted[1::2], strict=True)]


def _full(box):
    """The box as a list, empty if the box is."""
    return [box] if all(low < high for low, high in zip(box[::2], box[1::2], strict=True)) else []


def _piece(box, piece):
    """The piece of a box that one holder sends."""
    return box


def _at(shard, within, box):
    """The view of a tensor box in the shard that covers the range `within`."""
    ends = zip(box[::2], box[1::2], within[::2], strict=True)
    return shard[tuple(slice(low - start, high - start) for low, high, start in ends)]


@torch.no_grad()
def reshard(shard, group=None):
    """This device's target shard, exchanged with the other processes of a process group.

    Rank r is the r-th id of the sorted union of both meshes. `shard` is None on a rank outside the
    source mesh; the result is None on a rank outside the target mesh. Every process of the group
    calls this. The result is on the shard's device; without a shard, on the current GPU if the
    group uses NCCL, else on the CPU. It carries no gradient. Raises ValueError for a group of
    another size, a wrong shape or dtype.
    """
    if dist.get_world_size(group) != len(RANKS):
        raise ValueError(f"group of {dist.get_world_size(group)} ranks, expected {len(RANKS)}")
    device_id = RANKS[dist.get_rank(group)]
    me = _source_position(device_id)
    if (shard is None) == (me >= 0):
        got, expected = ("None", "a tensor") if shard is None else ("a tensor", "None")
        raise ValueError(f"source shard of device {device_id}: got {got}, expected {expected}")
    if me >= 0:
        _check(shard, device_id)
    home = shard.device if me >= 0 else _default_device(group)
    packed, sent = _pack(shard, me, home)
    arrivals = []
    if device_id in TARGET_IDS:
        arrivals = list(_incoming(TARGET_IDS.index(device_id), me))
    remote = [(RANKS.index(SOURCE_IDS[sender]), box) for sender, box in arrivals if sender != me]
    remote.sort(key=lambda arrival: arrival[0])
    buffer = torch.empty(sum(_bytes(box) for _, box in remote), dtype=torch.uint8, device=home)
    dist.all_to_all_single(buffer, packed, _bytes_by_rank(remote), sent, group=group)
    if device_id not in TARGET_IDS:
        return None
    out = torch.empty(target_shape(device_id), dtype=torch.bfloat16, device=home)
    within = target_box.fn(TARGET_IDS.index(device_id))
    for (_, box), piece in zip(remote, _pieces(buffer, remote), strict=True):
        place = _at(out, within, box)
        place.copy_(piece.view(place.shape))
    for box in [box for sender, box in arrivals if sender == me]:
        _at(out, within, box).copy_(_at(shard, source_box.fn(me), box))
    return out


def _default_device(group):
    # get_backend does not tell of a group made without naming one: gloo and NCCL side by side.
    on_gpu = "cuda:nccl" in dist.get_backend_config(group)
    return torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")


def _bytes(box):
    sides = zip(box[::2], box[1::2], strict=True)
    return 2 * math.prod(high - low for low, high in sides)


def _bytes_by_rank(pieces):
    sizes = [0] * len(RANKS)
    for rank, box in pieces:
        sizes[rank] += _bytes(box)
    return sizes


def _pack(shard, me, home):
    """The pieces this device sends, as bytes in the order of their receivers, and bytes a rank."""
    if me < 0:
        return torch.empty(0, dtype=torch.uint8, device=home), [0] * len(RANKS)
    leaving = [(RANKS.index(TARGET_IDS[receiver]), box) for receiver, box in _outgoing(me)]
    leaving.sort(key=lambda departure: departure[0])
    packed = torch.empty(sum(_bytes(box) for _, box in leaving), dtype=torch.uint8, device=home)
    for (_, box), place in zip(leaving, _pieces(packed, leaving), strict=True):
        piece = _at(shard, source_box.fn(me), box)
        place.view(piece.shape).copy_(piece)
    return packed, _bytes_by_rank(leaving)


def _pieces(buffer, listed):
    """The part of a buffer of bytes that each of the (rank, box) listed takes, as elements."""
    start = 0
    for _, box in listed:
        yield buffer[start : start + _bytes(box)].view(torch.bfloat16)
        start += _bytes(box)


def _self_check():
    """Checks that pieces fill every target shard; moves numbered elements if they are few."""
    for receiver, device_id in enumerate(TARGET_IDS):
        pieces = [box for _, box in _incoming(receiver, _source_position(device_id))]
        if sum(map(_bytes, pieces)) != _bytes(target_box.fn(receiver)):
            raise SystemExit(f"device {device_id}: the pieces do not fill its target shard")
    if math.prod(SHAPE) > 2**18:
        return f"the pieces fill every target shard ({math.prod(SHAPE)} elements, none moved)"
    number = torch.arange(math.prod(SHAPE)) % 113
    tensor = number.to(torch.uint8).repeat_interleave(2).view(torch.bfloat16).view(SHAPE)
    whole = (0,) * 4
    shards = []
    for device_id in sorted(SOURCE_IDS):
        shard = _at(tensor, whole, source_box.fn(SOURCE_IDS.index(device_id)))
        shard = shard.clone(memory_format=torch.contiguous_format)
        shards.append(shard.view(source_shape(device_id)))
    outputs = reshard_local(shards)
    for device_id, out in zip(sorted(TARGET_IDS), outputs, strict=True):
        wanted = _at(tensor, whole, target_box.fn(TARGET_IDS.index(device_id)))
        wanted = wanted.clone(memory_format=torch.contiguous_format)
        if not out.view(-1).view(torch.uint8).equal(wanted.view(-1).view(torch.uint8)):
            raise SystemExit(f"device {device_id}: wrong target shard")
    return f"{math.prod(SHAPE)} elements moved, every target shard right"


if __name__ == "__main__":
    print(f"ok: {_self_check()}")
