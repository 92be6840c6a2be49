"""Reshards float32[160, 160] over 8 devices: [{}, {"x", "y"}] -> [{"x", "y"}, {}].

Source: [{}, {"x", "y"}] on <["x"=2, "y"=4]>, shards of 160 x 20.
    d1(x, y)[k0, k1] -> t[k0, x * 80 + y * 20 + k1]
Target: [{"x", "y"}, {}] on <["x"=2, "y"=4]>, shards of 20 x 160.
    d2(x, y)[k0, k1] -> t[x * 80 + y * 20 + k0, k1]

Tiles are the intersections of source and target shards. Along dimension
    0: shards of 160 meet shards of 20, the cuts repeat every 160, starts are multiples of 20
    1: shards of 20 meet shards of 160, the cuts repeat every 160, starts are multiples of 20
Each tile has one holder, which sends it.

Bytes received: 11200 by the busiest device (the least possible is 11200), 89600 in all.
Bytes sent: 11200 by the busiest device (the least possible is 11200).

    device  source                 target
    0       [0, 160) x [0, 20)     [0, 20) x [0, 160)
    1       [0, 160) x [20, 40)    [20, 40) x [0, 160)
    2       [0, 160) x [40, 60)    [40, 60) x [0, 160)
    3       [0, 160) x [60, 80)    [60, 80) x [0, 160)
    4       [0, 160) x [80, 100)   [80, 100) x [0, 160)
    5       [0, 160) x [100, 120)  [100, 120) x [0, 160)
    6       [0, 160) x [120, 140)  [120, 140) x [0, 160)
    7       [0, 160) x [140, 160)  [140, 160) x [0, 160)

Made by
    shardwright emit --mesh x=2,y=4 --shape 160x160 --dtype float32 --source '[{"x", "y"}, {}]' --target '[{}, {"x", "y"}]' --topology torus:2x4,wrap=0x0,bandwidth=5e+10,latency=1e-06,powers_of_two=1,ragged=512,memory=8.19e+11 --name all_to_all_v5e -o generated  # triton_gpu_backward.py, the backward

Tested with triton 3.7.1 and 3.9.0, and torch 2.13.0.
"""

import contextlib
import functools
import importlib.util
import itertools
import math
import os
import pathlib
import socket
import weakref

if __name__ == "__main__":
    os.environ.setdefault("TRITON_INTERPRET", "1")

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric_memory
import triton
import triton.language as tl

__all__ = [
    "DTYPE",
    "LOCAL_SOURCE_SHAPE",
    "LOCAL_TARGET_SHAPE",
    "PLAN",
    "SHAPE",
    "SOURCE",
    "SOURCE_MESH",
    "TARGET",
    "TARGET_MESH",
    "reshard",
    "reshard_dtensor",
    "reshard_local",
    "source_shape",
    "symmetric_source",
    "target_shape",
]

SHAPE = (160, 160)
DTYPE = "float32"
SOURCE_MESH = '<["x"=2, "y"=4]>'
TARGET_MESH = '<["x"=2, "y"=4]>'
SOURCE = '[{}, {"x", "y"}]'
TARGET = '[{"x", "y"}, {}]'
LOCAL_SOURCE_SHAPE = (160, 20)
LOCAL_TARGET_SHAPE = (20, 160)

# Device ids by mesh position.
SOURCE_IDS = range(8)
TARGET_IDS = range(8)
RANKS = sorted({*SOURCE_IDS, *TARGET_IDS})
TORCH_DTYPE = torch.float32
ITEMSIZE = 4
# How long ranks wait for each other at a barrier of symmetric memory.
BARRIER_MS = 600_000
# Of the plan: processes that exchange must have the same.
PLAN = "cbdec7bf21e36d2e"

# A tile is cut into so many pieces, to share the sending among its holders.
PIECES = 1
# Dimensions, those together that are contiguous in both shards: a tile is rows along the last.
GROUPS = ((0,), (1,))
# A program copies so many rows, and units of a row.
BLOCK = (32, 16)
# Elements of a unit, units known to make 16 bytes, blocks of the largest tile along each group:
# of shards whose addresses are multiples of 16 bytes, and of others.
ALIGNED = (2, 2, 1, 1)
UNALIGNED = (1, 1, 1, 2)


@triton.jit
def source_shard(position):
    """Index of the source shard, per dimension, at a position of the source mesh."""
    return 0, position


@triton.jit
def target_shard(position):
    """Index of the target shard, per dimension, at a position of the target mesh."""
    return position, 0


@triton.jit
def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo1 = position * 20
    return 0, 160, lo1, lo1 + 20


@triton.jit
def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = position * 20
    return lo0, lo0 + 20, 0, 160


@triton.jit
def source_range(a0, a1):
    """Tensor range (low, high), per dimension, of a source shard."""
    lo1 = a1 * 20
    return 0, 160, lo1, lo1 + 20


@triton.jit
def tile(a0, a1, b0, b1):
    """Tensor range shared by a source shard and a target shard; empty where low >= high."""
    target_lo0 = b0 * 20
    source_lo1 = a1 * 20
    return target_lo0, target_lo0 + 20, source_lo1, source_lo1 + 20


@triton.jit
def senders(position):
    """First and count, per dimension, of the source shards that meet a target shard."""
    return 0, 1, 0, 8


@triton.jit
def receivers(position):
    """First and count, per dimension, of the target shards that meet a source shard."""
    return 0, 8, 0, 1


@triton.jit
def target_position(b0, b1, replica):
    """Position, in the target mesh, of a replica of a target shard."""
    return b0


@triton.jit
def holder(a0, a1, receiver):
    """Position, in the source mesh, of the holder that sends a piece of a tile to a receiver."""
    return a1


@triton.jit
def move(source, target, inside):
    """Copies the units where `inside` holds."""
    tl.store(target, tl.load(source, mask=inside), mask=inside)


@triton.jit
def copy_rows(
    source,
    target,
    read,  # where the first row begins in the source, in units,
    write,  # and in the target
    read_row,  # how far apart rows are in the source, in units,
    write_row,  # and in the target
    rows,
    columns,  # units of a row
    block,  # which block of the rows to copy
    LANES: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    COLUMN_BLOCKS: tl.constexpr,
):
    """Copies one block of contiguous rows: no division a unit."""
    row = block // COLUMN_BLOCKS * ROWS + tl.arange(0, ROWS)[:, None]
    column = block % COLUMN_BLOCKS * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    inside = (row < rows) & (column < columns)
    at = row * read_row + column
    to = row * write_row + column
    move(source + (read + at), target + (write + to), inside)


@triton.jit(do_not_specialize=["receiver", "me"])
def pull_kernel(
    peers,  # int64 [source positions]: the address of every source shard
    out,  # the target shard, as units
    receiver,  # position of this device in the target mesh
    me,  # its position in the source mesh, -1 if it is not in it
    UNIT: tl.constexpr,  # elements moved as one
    LANES: tl.constexpr,  # units in 16 bytes where shards are known to begin at such, else 1
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCKS0: tl.constexpr,
    BLOCKS1: tl.constexpr,
):
    """Copies one block of one tile out of the source shard that has it."""
    block = tl.program_id(0) % (BLOCKS0 * BLOCKS1)
    number = tl.program_id(0) // (BLOCKS0 * BLOCKS1)
    # The source shard to read: the device's own first, and on from there, so that devices that
    # start together do not all read from one.
    first0, count0, first1, count1 = senders(receiver)
    own0, own1 = source_shard(tl.where(me >= 0, me, receiver))
    a1 = first1 + (number % count1 + own1) % count1
    number = number // count1
    a0 = first0
    # The tile that it shares with the target shard.
    b0, b1 = target_shard(receiver)
    lo0, hi0, lo1, hi1 = tile(a0, a1, b0, b1)
    # A device that holds the tile copies its own; otherwise one holder sends each piece.
    held = me >= 0
    held = held & (a1 == own1)
    sender = tl.where(held, me, holder(a0, a1, receiver))
    # The tile as rows of units: how long, how many, how far apart and from where in both shards.
    from0, from_end0, from1, from_end1 = source_range(a0, a1)
    to0, to_end0, to1, to_end1 = target_box(receiver)
    columns = (hi1 - lo1) // UNIT
    rows = hi0 - lo0
    read_row = 20 // UNIT
    write_row = 160 // UNIT
    read = (lo0 - from0) * read_row
    read = read + (lo1 - from1) // UNIT
    write = (lo0 - to0) * write_row
    write = write + (lo1 - to1) // UNIT
    # Multiples of 16 bytes, all of these, in shards that begin at such.
    read = tl.multiple_of(tl.cast(read, tl.int32), LANES)
    write = tl.multiple_of(tl.cast(write, tl.int32), LANES)
    columns = tl.multiple_of(tl.cast(columns, tl.int32), LANES)
    source = tl.load(peers + sender).to(out.dtype)
    source = tl.multiple_of(source, LANES * UNIT * 4)
    copy_rows(
        source,
        out,
        read,
        write,
        read_row,
        write_row,
        rows,
        columns,
        block,
        LANES,
        ROWS,
        COLUMNS,
        BLOCKS1,
    )


@triton.jit
def copy_kernel(
    tiles,  # int64 [tiles, 7]: see `_entry`
    sources,  # int64: the addresses that tiles may come from
    out,  # where they go, as units
    UNIT: tl.constexpr,
    LANES: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCKS0: tl.constexpr,
    BLOCKS1: tl.constexpr,
):
    """Copies one block of one listed tile: packs what a device sends, unpacks what it received."""
    block = tl.program_id(0) % (BLOCKS0 * BLOCKS1)
    number = tl.program_id(0) // (BLOCKS0 * BLOCKS1)
    tile_entry = tiles + number * 7
    source = tl.load(sources + tl.load(tile_entry)).to(out.dtype)
    source = tl.multiple_of(source, LANES * UNIT * 4)
    read, write = tl.load(tile_entry + 1), tl.load(tile_entry + 2)
    columns, rows = tl.load(tile_entry + 3), tl.load(tile_entry + 4)
    read_row, write_row = tl.load(tile_entry + 5), tl.load(tile_entry + 6)
    # Multiples of 16 bytes, all of these, in shards that begin at such.
    read = tl.multiple_of(tl.cast(read, tl.int32), LANES)
    write = tl.multiple_of(tl.cast(write, tl.int32), LANES)
    columns = tl.multiple_of(tl.cast(columns, tl.int32), LANES)
    read_row = tl.multiple_of(tl.cast(read_row, tl.int32), LANES)
    write_row = tl.multiple_of(tl.cast(write_row, tl.int32), LANES)
    copy_rows(
        source,
        out,
        read,
        write,
        read_row,
        write_row,
        rows,
        columns,
        block,
        LANES,
        ROWS,
        COLUMNS,
        BLOCKS1,
    )


def source_shape(device_id):
    """Exact shape of the source shard on a device."""
    return _shape(source_box.fn(_position(SOURCE_IDS, device_id, "source")))


def target_shape(device_id):
    """Exact shape of the target shard on a device."""
    return _shape(target_box.fn(_position(TARGET_IDS, device_id, "target")))


def _shape(box):
    return tuple(high - low for low, high in zip(box[::2], box[1::2], strict=True))


def source_bytes():
    """Bytes of the largest source shard."""
    return ITEMSIZE * math.prod(LOCAL_SOURCE_SHAPE)


def _target(device_id, home):
    """Memory for the target shard of a device."""
    return torch.empty(target_shape(device_id), dtype=TORCH_DTYPE, device=home)


def _position(ids, device_id, side):
    if device_id not in ids:
        raise ValueError(f"device {device_id}: expected one of the {side} mesh, {list(ids)}")
    return ids.index(device_id)


def _source_position(device_id):
    """Position in the source mesh, -1 for a device that is not in it."""
    return SOURCE_IDS.index(device_id) if device_id in SOURCE_IDS else -1


def _check(tensor, shape, what):
    """Raises ValueError unless a kernel can take the tensor as it is."""
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"{what}: got {type(tensor).__name__}, expected a torch.Tensor")
    if tuple(tensor.shape) != shape or tensor.dtype != TORCH_DTYPE:
        raise ValueError(
            f"{what}: got {tuple(tensor.shape)} of {tensor.dtype}, "
            f"expected {shape} of torch.{DTYPE}"
        )
    if not tensor.is_contiguous():
        raise ValueError(f"{what}: expected a contiguous tensor")
    if tensor.is_neg():
        raise ValueError(f"{what}: got a lazily negated view, expected its resolve_neg()")


def _check_out(out, device_id, home, shards):
    """Raises ValueError unless a target shard can be written there."""
    what = f"out of device {device_id}"
    _check(out, target_shape(device_id), what)
    if out.device != home:
        raise ValueError(f"{what}: got a tensor on {out.device}, expected one on {home}")
    starts = {shard.untyped_storage().data_ptr() for shard in shards if shard.numel()}
    if out.untyped_storage().data_ptr() in starts:
        raise ValueError(f"{what}: shares memory with a source shard, which others still read")
    if out.requires_grad:
        raise ValueError(f"{what}: out takes no gradient")


def _overlap(one, other):
    """Whether two contiguous tensors have an element in common."""
    first, second = sorted((one, other), key=lambda tensor: tensor.data_ptr())
    nearer = first.numel() and second.numel() and first.device == second.device
    return bool(nearer) and first.data_ptr() + first.nbytes > second.data_ptr()


def reshard_local(shards, *, out=None):
    """The target shards, from source shards that one address space holds.

    `shards`: contiguous tensors of shape `source_shape(id)`, sorted by device id of the source
    mesh. Returns tensors of shape `target_shape(id)`, sorted by device id of the target mesh, each
    on the device of the source shard of its id, else of the first position's: those of `out` where
    given, else new ones. One launch a device, on its current stream.
    To capture that in a CUDA graph, call it once before with the same tensors.
    Its gradient is the reverse reshard: where target shards have replicas, all must get the same.
    Raises ValueError for a wrong number of shards, a wrong shape, dtype or device.
    """
    shards = list(shards)
    if _requires_grad(shards):
        if out is not None:
            raise ValueError("out takes no gradient: got source shards that require one")
        return list(_ReshardLocal.apply(*shards))
    return _reshard_local(shards, out)


def _requires_grad(shards):
    tensors = (shard for shard in shards if isinstance(shard, torch.Tensor))
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


class _ReshardLocal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *shards):
        return tuple(_reshard_local(list(shards), None))

    @staticmethod
    def backward(ctx, *gradients):
        return tuple(_backward().reshard_local([_plain(each) for each in gradients]))


def _plain(tensor):
    """The tensor as a kernel can take it: without gaps, no negation left to be done."""
    return tensor.resolve_neg().contiguous()


@functools.cache
def _backward():
    """The module of the reverse reshard, which stands beside this one."""
    path = pathlib.Path(__file__).with_name("triton_gpu.py")
    if not path.exists():
        raise RuntimeError(f"the gradient of this reshard is the one in {path}, which is missing")
    spec = importlib.util.spec_from_file_location(f"{__name__}_reverse", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@torch.no_grad()
def _reshard_local(shards, out):
    by_position = _by_position(shards)
    homes = {shard.device for shard in by_position}
    results = _results(by_position, out, homes)
    for reader, owner in itertools.permutations(homes, 2):
        _let_read(reader, owner)
    _join_streams(homes)
    for device_id, result in zip(sorted(TARGET_IDS), results, strict=True):
        receiver, me = TARGET_IDS.index(device_id), _source_position(device_id)
        if _has_kernels(result):
            _pull([shard.data_ptr() for shard in by_position], result, receiver, me)
        else:
            _pull_slices(by_position, result, receiver, me)
    _join_streams(homes)
    return results


def _by_position(shards):
    """The source shards, which come sorted by device id, in the order of the source mesh."""
    if len(shards) != len(SOURCE_IDS):
        raise ValueError(f"got {len(shards)} source shards, expected {len(SOURCE_IDS)}")
    held = dict(zip(sorted(SOURCE_IDS), shards, strict=True))
    for device_id, shard in held.items():
        _check(shard, source_shape(device_id), f"source shard of device {device_id}")
    return [held[device_id] for device_id in SOURCE_IDS]


def _results(by_position, out, homes):
    """The tensors to fill, by device id: those of `out` where given, else new ones."""
    if out is not None and len(out) != len(TARGET_IDS):
        raise ValueError(f"got {len(out)} tensors in out, expected {len(TARGET_IDS)}")
    held = dict(zip(SOURCE_IDS, by_position, strict=True))
    if len({home.type for home in homes}) > 1:
        raise ValueError(
            f"source shards on {sorted(map(str, homes))}, expected all on GPUs or all on the CPU"
        )
    results = []
    for number, device_id in enumerate(sorted(TARGET_IDS)):
        home = held.get(device_id, by_position[0]).device
        if out is None:
            results.append(_target(device_id, home))
        else:
            _check_out(out[number], device_id, home, by_position)
            if any(_overlap(out[number], other) for other in results):
                raise ValueError(f"out of device {device_id}: shares memory with another of out")
            results.append(out[number])
    return results


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


def _has_kernels(tensor):
    """Whether kernels can run where a tensor is: on a GPU, or in Triton's interpreter."""
    return tensor.device.type != "cpu" or not isinstance(pull_kernel, triton.JITFunction)


def _pull(addresses, out, receiver, me):
    """Fills a target shard from source shards at these addresses, by source position."""
    if out.numel():
        tiles = math.prod(senders.fn(receiver)[1::2]) * PIECES
        _launch(pull_kernel, tiles, addresses, out, receiver, me)


def _launch(kernel, tiles, addresses, out, *positions, listed=()):
    """Runs a kernel for so many tiles, in units as wide as the addresses allow."""
    moves = ALIGNED if _is_aligned(addresses, out) else UNALIGNED
    unit, _, *blocks = moves
    units = out.view(-1).view(_INTEGERS[unit * ITEMSIZE])
    table = _table(tuple(addresses), out.device, _stream(out.device))
    with torch.cuda.device(out.device) if out.is_cuda else contextlib.nullcontext():
        kernel[(tiles * math.prod(blocks),)](
            *listed, table, units, *positions, *moves[:2], *BLOCK, *blocks
        )


def _is_aligned(addresses, out):
    """Whether shards begin at multiples of 16 bytes, as kernels of whole units take them."""
    return all(address % 16 == 0 for address in (*addresses, out.data_ptr()))


_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@functools.lru_cache(maxsize=256)
def _table(numbers, device, stream):
    """Integers as a tensor; made once a stream: shards that stay where they are cost nothing."""
    table = torch.tensor(numbers, dtype=torch.int64, pin_memory=device.type == "cuda")
    return table.to(device, non_blocking=True)


def _stream(device):
    """The current stream of a device, 0 on the CPU."""
    return torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0


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


def _elements(box):
    return math.prod(high - low for low, high in zip(box[::2], box[1::2], strict=True))


def _entry(source, box, read, write, unit):
    """A listed tile, as `copy_kernel` takes it: the number of its source, then all in units.

    `read`, `write`: the range that the memory there covers, and the element at which it begins.
    """
    extents = [1, *_extents(box, unit)]
    read_at, read_strides = _placed(box, *read, unit)
    write_at, write_strides = _placed(box, *write, unit)
    rows = (extents[-1], extents[-2], read_strides[-2], write_strides[-2])
    outer = zip(extents[1:-2], read_strides[1:-2], write_strides[1:-2], strict=True)
    return (source, read_at, write_at, *rows, *itertools.chain(*outer))


def _placed(box, within, start, unit):
    """Where a box begins in a contiguous range, and how far apart its indices lie by group."""
    sizes = _extents(within, unit)
    strides = [math.prod(sizes[place + 1 :]) for place in range(len(sizes))]
    at = start // unit
    for group, stride in zip(GROUPS, strides, strict=True):
        first = (box[2 * group[0]] - within[2 * group[0]]) * _inner(box, group[1:])
        at += first * stride if group != GROUPS[-1] else first // unit
    return at, [0, *strides]


def _extents(box, unit):
    """Elements of a box along each group of dimensions; units along the last."""
    *outer, last = (_inner(box, group) for group in GROUPS)
    return [*outer, last // unit]


def _inner(box, dims):
    return math.prod(box[2 * dim + 1] - box[2 * dim] for dim in dims)


def reshard(shard, group=None, *, out=None, transport=None, check=False):
    """This device's target shard, exchanged with the other processes of a process group.

    Rank r is the r-th id of the sorted union of both meshes. `shard` is None on a rank outside the
    source mesh; the result is None on a rank outside the target mesh. Every process of the group
    calls this, all with the same `transport`:

        "symmetric"  all GPUs on one host: peers read each other's shards, in one launch a device.
                     The shard is copied to symmetric memory first, unless it is there already:
                     see `symmetric_source`.
        "exchange"   tiles are packed, exchanged by `all_to_all_single`, and unpacked.
        None         the first of these that every rank can take.

    The first call with a group compares the ranks' plans, shards and hosts: what is wrong on one
    rank is an error on every one. Later calls do so if `check`; else a wrong shard is an error on
    its own rank, and the others fail with the transport, which may take its time-out.

    The result is `out` where given. Otherwise it is new, on the shard's device; without a shard, on
    the current GPU if the group uses NCCL, else on the CPU. All runs on the current stream, of
    which a group has one. To capture it in a CUDA graph, call it once before with the same tensors.
    The gradient is that of the reverse reshard, where both meshes have the same devices.
    Raises ValueError for a group of another size, a wrong shard or out, and ranks that do not agree;
    RuntimeError, which names rank and plan, where the transport fails.
    """
    group = dist.group.WORLD if group is None else group
    if _requires_grad([shard]):
        return _Reshard.apply(shard, group, out, transport, check)
    return _reshard(shard, group, out, transport, check, wants_gradient=False)


class _Reshard(torch.autograd.Function):
    @staticmethod
    def forward(ctx, shard, group, out, transport, check):
        ctx.group, ctx.transport, ctx.check = group, transport, check
        return _reshard(shard, group, out, transport, check, wants_gradient=True)

    @staticmethod
    def backward(ctx, gradient):
        reverse, gradient = _backward().reshard, _plain(gradient)
        moved = reverse(gradient, ctx.group, transport=ctx.transport, check=ctx.check)
        return moved, None, None, None, None


@torch.no_grad()
def _reshard(shard, group, out, transport, check, wants_gradient):
    rank = dist.get_rank(group)
    try:
        fault, home = "", _check_call(shard, group, out, transport, wants_gradient)
    except ValueError as error:
        fault, home = str(error), None
    agreed = _AGREED.setdefault(group, {})
    try:
        if check or transport not in agreed:
            agreed[transport] = _agree(group, _PLAN, fault, home, transport)
        elif fault:
            raise ValueError(fault)
        device_id = RANKS[rank]
        if out is None and device_id in TARGET_IDS:
            out = _target(device_id, home)
        move = _by_symmetric_memory if agreed[transport] == "symmetric" else _by_exchange
        move(shard, out, device_id, home, group)
    except RuntimeError as error:
        raise RuntimeError(f"rank {rank} of {len(RANKS)}, {_PLAN}: {error}") from error
    return out


_PLAN = f"plan {PLAN} ({SOURCE} -> {TARGET})"
_AGREED = weakref.WeakKeyDictionary()  # group: {transport asked for: transport taken}


def _check_call(shard, group, out, transport, wants_gradient):
    """The device of the result. Raises ValueError for what is wrong on this rank."""
    if dist.get_world_size(group) != len(RANKS):
        raise ValueError(f"group of {dist.get_world_size(group)} ranks, expected {len(RANKS)}")
    if transport not in (None, "symmetric", "exchange"):
        raise ValueError(f"transport {transport!r}: expected 'symmetric', 'exchange' or None")
    device_id = RANKS[dist.get_rank(group)]
    me = _source_position(device_id)
    if (shard is None) == (me >= 0):
        got, expected = ("None", "a tensor") if shard is None else ("a tensor", "None")
        raise ValueError(f"source shard of device {device_id}: got {got}, expected {expected}")
    if me >= 0:
        _check(shard, source_shape(device_id), f"source shard of device {device_id}")
    home = shard.device if me >= 0 else _default_device(group)
    if out is not None:
        if device_id not in TARGET_IDS:
            raise ValueError(f"out of device {device_id}: got a tensor, expected None")
        _check_out(out, device_id, home, [shard] if me >= 0 else [])
    if wants_gradient and (out is not None or set(SOURCE_IDS) != set(TARGET_IDS)):
        why = "out takes no gradient" if out is not None else "some devices are in one mesh only"
        raise ValueError(f"source shard of device {device_id} requires a gradient, but {why}")
    served = dist.get_backend_config(group)
    if f"{home.type}:" not in served:
        raise ValueError(
            f"source shard of device {device_id}: got a tensor on {home}, "
            f"expected one where the group communicates, {served}"
        )
    if transport == "symmetric" and home.type != "cuda":
        raise ValueError(f"transport 'symmetric': got a shard on {home}, expected one on a GPU")
    return home


def _agree(group, plan, fault, home, transport):
    """The transport to take. Raises ValueError on every rank if anything is wrong on any."""
    host = socket.gethostname() if home is not None and home.type == "cuda" else ""
    kind = "" if home is None else f"tensors on {home.type}"
    mine = (plan, fault, f"transport {transport!r}", kind, host)
    said = [None] * dist.get_world_size(group)
    dist.all_gather_object(said, mine, group=group)
    plans, faults, transports, kinds, hosts = zip(*said, strict=True)
    for rank, problem in enumerate(faults):
        if problem and len(set(plans)) == 1:
            raise ValueError(f"rank {rank}: {problem}")
    for given in (plans, transports, kinds):
        for rank, other in enumerate(given):
            if other != given[0]:
                raise ValueError(f"ranks differ: rank 0 has {given[0]}, rank {rank} has {other}")
    one_host = bool(host) and len(set(hosts)) == 1
    if transport == "symmetric" and not one_host:
        raise ValueError(f"transport 'symmetric': GPUs of hosts {hosts}, expected those of one")
    return transport or ("symmetric" if one_host else "exchange")


def _default_device(group):
    # get_backend does not tell of a group made without naming one: gloo and NCCL side by side.
    on_gpu = "cuda:nccl" in dist.get_backend_config(group)
    return torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")


def _by_symmetric_memory(shard, out, device_id, home, group):
    """All ranks offer their shards, then each pulls its tiles from where they are."""
    buffer, handle = _symmetric_buffer(group, home)
    if shard is not None and shard.data_ptr() != buffer.data_ptr():
        buffer[: shard.nbytes].copy_(shard.view(-1).view(torch.uint8))
    handle.barrier(timeout_ms=BARRIER_MS)
    if out is not None:
        addresses = [handle.buffer_ptrs[RANKS.index(source)] for source in SOURCE_IDS]
        _pull(addresses, out, TARGET_IDS.index(device_id), _source_position(device_id))
    handle.barrier(timeout_ms=BARRIER_MS)


def symmetric_source(group=None):
    """This device's source shard in symmetric memory, to be filled and given to `reshard`.

    For GPUs of one host. The first call for a group is one that every rank makes.
    """
    group = dist.group.WORLD if group is None else group
    home = torch.device("cuda", torch.cuda.current_device())
    shape = source_shape(RANKS[dist.get_rank(group)])
    buffer, _ = _symmetric_buffer(group, home)
    size = ITEMSIZE * math.prod(shape)
    return buffer[:size].view(TORCH_DTYPE).view(shape)


def _symmetric_buffer(group, home):
    """Memory that holds any source shard and that every rank can read; made once a group."""
    if group not in _SYMMETRIC:
        # The barrier of another backend, NVSHMEM, has been known to do nothing.
        if symmetric_memory.get_backend(home) != "CUDA":
            symmetric_memory.set_backend("CUDA")
        buffer = symmetric_memory.empty(source_bytes(), dtype=torch.uint8, device=home)
        _SYMMETRIC[group] = buffer, symmetric_memory.rendezvous(buffer, group)
    return _SYMMETRIC[group]


_SYMMETRIC = weakref.WeakKeyDictionary()


def _by_exchange(shard, out, device_id, home, group):
    """Tiles go packed, exactly those that the plan moves; the own ones are copied."""
    wire = _Wire.of(device_id, home, _stream(home))
    wire.pack(shard)
    dist.all_to_all_single(wire.arrived, wire.packed, wire.received, wire.sent, group=group)
    wire.unpack(shard, out)


class _Wire:
    """What a device exchanges on one of its streams: the tiles by rank, and buffers for them."""

    def __init__(self, device_id, home):
        me = self.me = _source_position(device_id)
        receiver = TARGET_IDS.index(device_id) if device_id in TARGET_IDS else -1
        arriving = list(_incoming(receiver, me)) if receiver >= 0 else []
        leaving = list(_outgoing(me)) if me >= 0 else []
        self.held = source_box.fn(me) if me >= 0 else None
        self.wanted = target_box.fn(receiver) if receiver >= 0 else None
        self.local = [box for sender, box in arriving if sender == me]
        self.arriving, self.received = _by_rank(
            (SOURCE_IDS[sender], box) for sender, box in arriving if sender != me
        )
        self.leaving, self.sent = _by_rank((TARGET_IDS[to], box) for to, box in leaving)
        self.packed = torch.empty(sum(self.sent), dtype=torch.uint8, device=home)
        self.arrived = torch.empty(sum(self.received), dtype=torch.uint8, device=home)
        self.lists = {}

    @staticmethod
    @functools.cache
    def of(device_id, home, stream):
        return _Wire(device_id, home)

    def pack(self, shard):
        """Copies what leaves out of the shard: one launch."""
        if not self.leaving:
            return
        if _has_kernels(self.packed):
            self._copy([shard.data_ptr()], self.packed, self._leave)
            return
        for start, box in self.leaving:
            piece = _at(shard, self.held, box)
            _packed(self.packed, start, box).view(piece.shape).copy_(piece)

    def unpack(self, shard, out):
        """Copies what has arrived, and what was here already, to its place: one launch."""
        if out is None or out.numel() == 0:
            return
        if _has_kernels(out):
            own = shard.data_ptr() if self.local else 0
            self._copy([own, self.arrived.data_ptr()], out, self._arrive)
            return
        for box in self.local:
            _at(out, self.wanted, box).copy_(_at(shard, self.held, box))
        for start, box in self.arriving:
            place = _at(out, self.wanted, box)
            place.copy_(_packed(self.arrived, start, box).view(place.shape))

    def _copy(self, addresses, out, entries):
        unit = (ALIGNED if _is_aligned(addresses, out) else UNALIGNED)[0]
        if (unit, entries.__name__) not in self.lists:
            listed = _table(tuple(entries(unit)), out.device, _stream(out.device))
            self.lists[unit, entries.__name__] = listed
        listed = self.lists[unit, entries.__name__]
        _launch(copy_kernel, len(listed), addresses, out, listed=(listed,))

    def _leave(self, unit):
        for start, box in self.leaving:
            yield _entry(0, box, (self.held, 0), (box, start), unit)

    def _arrive(self, unit):
        for box in self.local:
            yield _entry(0, box, (self.held, 0), (self.wanted, 0), unit)
        for start, box in self.arriving:
            yield _entry(1, box, (box, start), (self.wanted, 0), unit)


def _by_rank(pieces):
    """(first element in the buffer, box) of each (device, box), by rank; bytes a rank."""
    sizes, listed, start = [0] * len(RANKS), [], 0
    ordered = sorted(((RANKS.index(device), box) for device, box in pieces), key=lambda at: at[0])
    for rank, box in ordered:
        listed.append((start, box))
        start += _elements(box)
        sizes[rank] += _elements(box) * ITEMSIZE
    return listed, sizes


def _packed(buffer, start, box):
    """The elements of a box in a buffer of bytes."""
    return buffer.view(TORCH_DTYPE)[start : start + _elements(box)]


def reshard_dtensor(x, target_mesh=None, group=None, *, transport=None):
    """`reshard` of a DTensor: from (Shard(1), Shard(1)) to (Shard(0), Shard(0)).

    `target_mesh` is the DeviceMesh of the result, None that of `x`. Raises ValueError for another
    shape, other placements or other devices, and as `reshard` does.
    """
    from torch.distributed.tensor import DTensor, Shard

    group = dist.group.WORLD if group is None else group
    target_mesh = x.device_mesh if target_mesh is None else target_mesh
    before, after = (Shard(1), Shard(1)), (Shard(0), Shard(0))
    if tuple(x.shape) != SHAPE or tuple(x.placements) != before:
        raise ValueError(
            f"got {tuple(x.shape)} placed {tuple(x.placements)}, expected {SHAPE} placed {before}"
        )
    _check_mesh(x.device_mesh, (2, 4), SOURCE_IDS, group, "source")
    _check_mesh(target_mesh, (2, 4), TARGET_IDS, group, "target")
    inside = x.device_mesh.get_coordinate() is not None
    shard = x.to_local().resolve_neg().contiguous() if inside else None
    moved = reshard(shard, group, transport=transport)
    local = torch.empty(0, dtype=TORCH_DTYPE) if moved is None else moved
    stride = tuple(math.prod(SHAPE[axis + 1 :]) for axis in range(len(SHAPE)))
    return DTensor.from_local(
        local, target_mesh, after, run_check=False, shape=torch.Size(SHAPE), stride=stride
    )


def _check_mesh(mesh, shape, ids, group, side):
    """Raises ValueError unless a DeviceMesh has the plan's shape and devices."""
    members = dist.get_process_group_ranks(group)
    if len(members) != len(RANKS):
        raise ValueError(f"group of {len(members)} ranks, expected {len(RANKS)}")
    wanted = torch.tensor([members[RANKS.index(device)] for device in ids]).view(shape).tolist()
    if mesh.mesh.tolist() != wanted:
        raise ValueError(f"{side} mesh: got {mesh.mesh.tolist()}, expected {wanted}")


def _self_check():
    """Checks that pieces fill every target shard; moves numbered elements if they are few."""
    for receiver, device_id in enumerate(TARGET_IDS):
        pieces = [box for _, box in _incoming(receiver, _source_position(device_id))]
        if sum(map(_elements, pieces)) != _elements(target_box.fn(receiver)):
            raise SystemExit(f"device {device_id}: the pieces do not fill its target shard")
    if math.prod(SHAPE) > 2**18:
        return f"the pieces fill every target shard ({math.prod(SHAPE)} elements, none moved)"
    shards, wanted = _numbered()
    outputs = reshard_local(shards)
    for device_id, out, right in zip(sorted(TARGET_IDS), outputs, wanted, strict=True):
        if not out.view(-1).view(torch.uint8).equal(right.view(-1).view(torch.uint8)):
            raise SystemExit(f"device {device_id}: wrong target shard")
    return f"{math.prod(SHAPE)} elements moved, every target shard right"


def _numbered():
    """Source shards and target shards of a tensor of numbers, both by device id."""
    number = torch.arange(math.prod(SHAPE)) % 113
    tensor = number.to(torch.uint8).repeat_interleave(ITEMSIZE).view(TORCH_DTYPE).view(SHAPE)
    whole, sides = (0,) * 4, []
    for ids, box, shape in (
        (SOURCE_IDS, source_box, source_shape),
        (TARGET_IDS, target_box, target_shape),
    ):
        held = {device: _at(tensor, whole, box.fn(ids.index(device))) for device in sorted(ids)}
        copies = (part.clone(memory_format=torch.contiguous_format) for part in held.values())
        sides.append([part.view(shape(device)) for device, part in zip(held, copies, strict=True)])
    return sides


if __name__ == "__main__":
    print(f"ok: {_self_check()}")
