"""Move bfloat16 q 32x16, k 8x16, v 8x16 from one stored layout to another.

The busiest device receives 512 bytes, the least possible.
No device sends over 576; all devices together receive 2,048.

Emitted by
    shardwright emit manifest.json --name packed_qkv  # in the parent folder
"""

import contextlib
import functools
import itertools
import math
import operator
from typing import NamedTuple

import torch
import torch.distributed as dist
import triton
import triton.language as tl

# _support/triton_boxes.py
"""Copies of strided boxes of elements between memory blocks of one device, in one launch.

Tested with triton 3.7.1 and torch 2.13.0.
"""

BLOCK, PROGRAMS = 1024, 4096  # elements that a program copies at once; largest number of programs
INTEGERS = {1: tl.uint8, 2: tl.int16, 4: tl.int32, 8: tl.int64}
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@triton.jit
def copy_boxes(
    blocks,  # int64 [number, 3]: a block's box, and its first row and column in the box
    boxes,  # int64 [boxes, 8 + 3 * DEPTH]: an index into `sources` and one into `targets`, the
    # first element in each memory block, the number of rows and of columns, the step from one
    # column to the next in each block; then for each loop over rows, inner to outer, its
    # count and its two steps
    sources,  # int64: the addresses of memory blocks that elements come from
    targets,  # int64: the addresses of memory blocks that elements go to
    number,  # number of blocks
    INTEGER: tl.constexpr,  # the integer type that is moved
    DEPTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Copy blocks of ROWS by COLUMNS elements of strided boxes; each program loops over several
    blocks."""
    for place in range(tl.program_id(0), number, tl.num_programs(0)):
        box = boxes + (8 + 3 * DEPTH) * tl.load(blocks + 3 * place)
        row = tl.load(blocks + 3 * place + 1) + tl.arange(0, ROWS)
        column = tl.load(blocks + 3 * place + 2) + tl.arange(0, COLUMNS)
        inside = (row < tl.load(box + 4))[:, None] & (column < tl.load(box + 5))[None, :]
        source = tl.load(sources + tl.load(box)).to(tl.pointer_type(INTEGER)) + tl.load(box + 2)
        target = tl.load(targets + tl.load(box + 1)).to(tl.pointer_type(INTEGER)) + tl.load(box + 3)
        at, to = tl.full((ROWS,), 0, tl.int64), tl.full((ROWS,), 0, tl.int64)
        for loop in tl.static_range(DEPTH):
            times = tl.load(box + 8 + 3 * loop)
            at += row % times * tl.load(box + 9 + 3 * loop)
            to += row % times * tl.load(box + 10 + 3 * loop)
            row = row // times
        source += at[:, None] + (column * tl.load(box + 6))[None, :]
        target += to[:, None] + (column * tl.load(box + 7))[None, :]
        tl.store(target, tl.load(source, mask=inside), mask=inside)


class Box(NamedTuple):
    """Elements to copy. `source`, `target`: the index of a memory block in `sources` and one in
    `targets`; `read`, `write`: the first element in each block; `loops`: outer to inner, each a
    count, a step in the source and a step in the target."""

    source: int
    target: int
    read: int
    write: int
    loops: tuple


def dense(loops):
    """Return the step of each loop in a dense array of the elements of all loops."""
    times = [loop[0] for loop in loops]
    return [math.prod(times[n + 1 :]) for n in range(len(times))]


def copy(boxes, sources, targets, size):
    """Copy boxes of elements of `size` bytes between lists of tensors, possibly views; boxes have
    the steps of contiguous tensors of the same shapes."""
    if not boxes:
        return
    for end, tensors in enumerate((sources, targets)):
        if not all(x.is_contiguous() for x in tensors):
            pairs = [(box, tensors[box[end]]) for box in boxes]
            boxes = [each for box, x in pairs for each in strided(box, end, x.shape, x.stride())]
    home = targets[boxes[0].target].device
    if home.type == "cpu" and isinstance(copy_boxes, triton.JITFunction):
        for source, target, read, write, loops in boxes:
            times, *steps = zip(*loops, strict=True) if loops else ((), (), ())
            held = _elements(sources[source], size, times, steps[0], read)
            _elements(targets[target], size, times, steps[1], write).copy_(held)
        return
    addresses = [[x.data_ptr() for x in each] for each in (sources, targets)]
    wide = _width(boxes, size, math.gcd(*itertools.chain(*addresses)))
    blocks, table, *shape = _tables(tuple(boxes), wide // size, home)
    given = [_numbers(each, home) for each in addresses]
    on = torch.cuda.device(home) if home.type == "cuda" else contextlib.nullcontext()
    number = len(blocks)
    with on:
        copy_boxes[(min(number, PROGRAMS),)](blocks, table, *given, number, INTEGERS[wide], *shape)


def _elements(x, size, times, steps, first):
    """View, as integers of `size` bytes, the elements that nested loops with counts `times`
    visit, starting at element `first` of a tensor."""
    whole = x.view(BITS[size])
    return whole.as_strided(times, steps, whole.storage_offset() + first)


@functools.lru_cache(maxsize=4096)
def strided(box, end, shape, strides):
    """Return boxes of the same elements as a box, with the steps of a tensor of these strides at
    one end (0: source, 1: target). The given box has the steps of a contiguous tensor at that
    end."""
    dense = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
    steps = [box[2 + end], *(loop[1 + end] for loop in box.loops)]
    digits = [[step // d % n for d, n in zip(dense, shape, strict=True)] for step in steps]
    rounds = [1, *(loop[0] - 1 for loop in box.loops)]
    last = [sum(map(operator.mul, rounds, column)) for column in zip(*digits, strict=True)]
    if all(place < extent for place, extent in zip(last, shape, strict=True)):
        start, *steps = (sum(map(operator.mul, each, strides)) for each in digits)
        return (_moved(box, end, start, steps),)
    for number, (times, *pair) in enumerate(
        box.loops
    ):  # split a loop that continues in the next row
        for row in dense:
            inner = row // pair[end] if pair[end] and row % pair[end] == 0 else 1
            if 1 < inner < times and times % inner == 0:
                outer = times // inner, *(inner * step for step in pair)
                nest = *box.loops[:number], outer, (inner, *pair), *box.loops[number + 1 :]
                return strided(box._replace(loops=nest), end, shape, strides)
    (times, *pair), *rest = box.loops
    starts = ((box.read + n * pair[0], box.write + n * pair[1]) for n in range(times))
    parts = (Box(box.source, box.target, *start, tuple(rest)) for start in starts)
    return tuple(each for part in parts for each in strided(part, end, shape, strides))


def _moved(box, end, start, steps):
    """Replace the first element and the steps of a box at one end."""
    pairs = zip(box.loops, steps, strict=True)
    nest = tuple((n, step, to) if end == 0 else (n, at, step) for (n, at, to), step in pairs)
    return box._replace(loops=nest, **{("read", "write")[end]: start})


def _width(boxes, size, aligned):
    """Return the number of bytes to move as one integer: if rows are contiguous at both ends, the
    largest divisor, at most 8, of all addresses, offsets, row lengths and steps; else `size`."""
    most = math.gcd(aligned, 8)
    for _, _, read, write, loops in boxes:
        *outer, inner = loops or ((1, 1, 1),)
        if tuple(inner[1:]) != (1, 1):
            return size
        places = read, write, inner[0], *(step for loop in outer for step in loop[1:])
        most = math.gcd(most, size * math.gcd(*places))
    return most


@functools.lru_cache(maxsize=4096)
def _tables(boxes, unit, home):
    """Return the arguments of `copy_boxes` in units of `unit` elements: the tables of blocks and
    boxes, DEPTH, ROWS and COLUMNS."""
    depth = max(1, max(len(box[4]) for box in boxes) - 1)
    rows, sizes = [], []
    for source, target, read, write, loops in boxes:
        *outer, (columns, *steps) = loops or ((1, 1, 1),)
        scaled = [(times, at // unit, to // unit) for times, at, to in outer]
        nest = scaled[::-1] + [(1, 0, 0)] * (depth - len(scaled))
        sizes.append((math.prod(times for times, *_ in outer), columns // unit))
        ends = source, target, read // unit, write // unit
        rows.append([*ends, *sizes[-1], *steps, *itertools.chain(*nest)])
    widths = [BLOCK >> n for n in range(BLOCK.bit_length())]
    width = min(widths, key=lambda each: _blocks(sizes, each))
    blocks = [
        (number, row, column)
        for number, (down, across) in enumerate(sizes)
        for row in range(0, down, BLOCK // width)
        for column in range(0, across, width)
    ]
    return _numbers(blocks, home), _numbers(rows, home), depth, BLOCK // width, width


def _blocks(sizes, width):
    """Return the number of blocks of `width` columns that cover boxes of these (rows, columns)."""
    return sum(-(-down // (BLOCK // width)) * -(-across // width) for down, across in sizes)


def _numbers(listed, home):
    return torch.tensor(listed, dtype=torch.int64, device="cpu").to(home)


__all__ = ["RECEIVED", "reshard", "reshard_local", "source_shape", "target_shape"]

DTYPE = "bfloat16"
SOURCE_MESH = '<["fsdp"=5]>'
SOURCE_IDS = range(5)
# Each buffer's layout, the parts that each device stores in it, in order (ranges index
# the part as stored), and its shape on every device.
SOURCE = {
    "qkv": (
        'cut(0, {"fsdp"}, stack(0, q, k, v))',
        # device 0: q[0:10]
        # device 1: q[10:20]
        # device 2: q[20:30]
        # device 3: q[30:32], k
        # device 4: v
        [(10, 16), (10, 16), (10, 16), (10, 16), (8, 16)],
    ),
}
TARGET_MESH = '<["tp"=4], device_ids=[5, 6, 7, 8]>'
TARGET_IDS = range(5, 9)
# Each buffer's layout, the parts that each device stores in it, in order (ranges index
# the part as stored), and its shape on every device.
TARGET = {
    "qkv": (
        'stack(0, q[{"tp"}], k[{"tp":(1)2}], v[{"tp":(1)2}])',
        # device 5: q[0:8], k[0:4], v[0:4]
        # device 6: q[8:16], k[0:4], v[0:4]
        # device 7: q[16:24], k[4:8], v[4:8]
        # device 8: q[24:32], k[4:8], v[4:8]
        [(16, 16)] * 4,
    ),
}
# Forms of relays: the source buffer, the target buffers, and nested loops, each with its count and
# its step in each buffer, in elements, source first.
FORMS = [
    (0, (0,), ((32, 1, 1),)),
    (0, (0,), ((96, 1, 1),)),
    (0, (0,), ((64, 1, 1),)),
    (0, (0,), ((128, 1, 1),)),
]
# Sender, receiver, form, and the first element in each buffer, source first; comments give
# the number of elements and their ranges in a tensor.
RELAYS = [
    (0, 5, 3, 0, 0),  # 128 of q[0:8]
    (0, 6, 0, 128, 0),  # 32 of q[8:10]
    (1, 6, 1, 0, 32),  # 96 of q[10:16]
    (1, 7, 2, 96, 0),  # 64 of q[16:20]
    (2, 7, 2, 0, 64),  # 64 of q[20:24]
    (2, 8, 1, 64, 0),  # 96 of q[24:30]
    (3, 5, 2, 32, 128),  # 64 of k[0:4]
    (3, 6, 2, 32, 128),  # 64 of k[0:4]
    (3, 7, 2, 96, 128),  # 64 of k[4:8]
    (3, 8, 0, 0, 96),  # 32 of q[30:32]
    (3, 8, 2, 96, 128),  # 64 of k[4:8]
    (4, 5, 2, 0, 192),  # 64 of v[0:4]
    (4, 6, 2, 0, 192),  # 64 of v[0:4]
    (4, 7, 2, 64, 192),  # 64 of v[4:8]
    (4, 8, 2, 64, 192),  # 64 of v[4:8]
]
RECEIVED = 512  # bytes received by the busiest device, the minimum
RANKS = sorted({*SOURCE_IDS, *TARGET_IDS})  # the device of each rank of a group
MOVES = [(sender, receiver, FORMS[form], *starts) for sender, receiver, form, *starts in RELAYS]


def reshard_local(shards, *, out=None):
    """Return the target buffers of all devices, given the source buffers: dicts by name of lists
    with a tensor for each device of the mesh, sorted by id. One launch for each target device.

    `out`: target buffers in the form of the result, to fill, except their padding; new results have
    zero padding. Tensors may be views, such as `w13[:, :F]`: they are read and written in place.
    Raises ValueError for wrong names, numbers of tensors, shapes or dtypes.
    """
    given, made = _of_all(shards, SOURCE, "shards"), None
    if out is not None:
        made = _of_all(out, TARGET, "out")
    results = _local(given, made)
    return {name: results[number :: len(TARGET)] for number, name in enumerate(TARGET)}


def reshard(shards, group=None, *, out=None):
    """Return this device's target buffers, by name, exchanged with the other processes of a group.

    Rank r of the group is device RANKS[r]. `shards`: its source buffers by name, None outside the
    source mesh; the result is None outside the target mesh. `out`: as in `reshard_local`. All data
    for another rank is packed into one message.
    """
    device = RANKS[dist.get_rank(group)]
    given, made = [], None
    if device in SOURCE_IDS:
        given = _checked(shards, SOURCE, device, None, "shards")
    if device in TARGET_IDS and out is not None:
        made = _checked(out, TARGET, device, None, "out")
    results = _exchanged(device, group, given, made)
    return dict(zip(TARGET, results, strict=True)) if device in TARGET_IDS else None


def source_shape(name, device_id):
    """Return the shape of a source buffer on a device."""
    return SOURCE[name][1][SOURCE_IDS.index(device_id)]


def target_shape(name, device_id):
    """Return the shape of a target buffer on a device."""
    return TARGET[name][1][TARGET_IDS.index(device_id)]


def _local(given, made=None):
    """Return the target buffers of all devices, given all source buffers; each side in one list."""
    targets, home = sorted(TARGET_IDS), given[0].device
    made = made or [x for each in targets for x in _blank(TARGET, each, _dtype(), home)]
    return _between(given, made, MOVES, sorted(SOURCE_IDS), targets, _copy)


def _between(given, made, moves, senders, receivers, place):
    """Fill the buffers of all receivers from those of all senders, and return them."""
    of_sender, of_receiver = len(given) // len(senders), len(made) // len(receivers)
    for number, device in enumerate(receivers):
        boxes = [
            _box(move, nth, senders.index(move[0]) * of_sender)
            for move in moves
            if move[1] == device
            for nth in range(len(move[2][1]))
        ]
        place(boxes, given, made[number * of_receiver : (number + 1) * of_receiver])
    return made


def _exchanged(device, group, given, made=None):
    """Return the target buffers of a device, given its source buffers."""
    if device in TARGET_IDS and made is None:
        made = _blank(TARGET, device, _dtype(), given[0].device if given else _home(group))
    return _through(group, device, given, made or [], MOVES, _copy)


def _through(group, device, given, made, moves, place):
    """Write the elements that this device and the other ranks send to it into its buffers, and
    return the buffers."""
    line, sizes = packed(device, given, (given or made)[0].device, moves)
    expected = _message_bytes(device, moves, receiving=True)
    arrived = torch.empty(sum(expected), dtype=torch.uint8, device=line.device)
    dist.all_to_all_single(arrived, line, expected, sizes, group=group)
    boxes, begin = [], 0
    for move in _ordered(device, moves, receiving=True):
        _, buffers, loops = move[2]
        for n, buffer in enumerate(buffers):
            unpacks = zip(loops, dense(loops), strict=True)
            nest = tuple((loop[0], dense, loop[2 + n]) for loop, dense in unpacks)
            boxes.append(Box(0, buffer, begin, move[4 + n], nest))
        begin += math.prod(times for times, *_ in loops)
    place(boxes, [arrived], made)
    own = [move for move in moves if move[0] == move[1] == device]
    place([_box(move, nth) for move in own for nth in range(len(move[2][1]))], given, made)
    return made


def packed(device, given, home, moves=MOVES):
    """Return a device's messages to all ranks in one flat byte array, and their lengths."""
    sizes = _message_bytes(device, moves, receiving=False)
    line = torch.empty(sum(sizes), dtype=torch.uint8, device=home)
    boxes, begin = [], 0
    for move in _ordered(device, moves, receiving=False):
        buffer, _, loops = move[2]
        packs = zip(loops, dense(loops), strict=True)
        nest = tuple((times, step, dense) for (times, step, *_), dense in packs)
        boxes.append(Box(buffer, 0, move[3], begin, nest))
        begin += math.prod(times for times, *_ in loops)
    _copy(boxes, given, [line])
    return line, sizes


def _box(move, nth, first=0):
    """Return the box that a move copies to the nth target buffer of its form; `first`: the index,
    in `sources`, of the sender's first buffer."""
    _, _, (buffer, buffers, loops), start, *starts = move
    nest = tuple((loop[0], loop[1], loop[2 + nth]) for loop in loops)
    return Box(first + buffer, buffers[nth], start, starts[nth], nest)


def _ordered(device, moves, *, receiving):
    """Return the moves between a device and others, ordered by the others' ranks."""
    own, other = (1, 0) if receiving else (0, 1)
    return sorted(
        (move for move in moves if move[own] == device != move[other]),
        key=lambda move: RANKS.index(move[other]),
    )


def _message_bytes(device, moves, *, receiving):
    sizes = dict.fromkeys(RANKS, 0)
    for move in _ordered(device, moves, receiving=receiving):
        count = math.prod(times for times, *_ in move[2][2])
        sizes[move[0 if receiving else 1]] += count * _dtype().itemsize
    return [*sizes.values()]


def _copy(boxes, sources, targets):
    """Copy boxes of elements within the memory of one device."""
    copy(boxes, sources, targets, _dtype().itemsize)


def _dtype():
    return getattr(torch, DTYPE)


def _blank(side, device, dtype, home):
    """Return buffers of zeros for a device."""
    shape_of = source_shape if side is SOURCE else target_shape
    return [torch.empty(shape_of(n, device), dtype=dtype, device=home).zero_() for n in side]


def _home(group):
    """Return the device of a rank's tensors."""
    return torch.device("cpu" if dist.get_backend(group) == "gloo" else "cuda")


def _of_all(tensors, side, what):
    """Return the tensors of all devices, by id and in the order of a side's buffers."""
    ids = sorted(SOURCE_IDS if side is SOURCE else TARGET_IDS)
    _check_names(tensors, side, what)
    for name in side:
        if len(tensors[name]) != len(ids):
            got = f"got {len(tensors[name])} tensors, expected {len(ids)}"
            raise ValueError(f"{what}, {name}: {got}, one for each device")
    return [x for n, each in enumerate(ids) for x in _checked(tensors, side, each, n, what)]


def _check_names(tensors, side, what):
    """Raise ValueError unless the tensors are a dict of the buffers of a side."""
    if not isinstance(tensors, dict) or tensors.keys() != side.keys():
        got = [*tensors] if isinstance(tensors, dict) else type(tensors).__name__
        raise ValueError(f"{what}: got {got}, expected a dict of {[*side]}")


def _checked(tensors, side, device, number, what):
    """Return the tensors of a device in the order of a side's buffers."""
    _check_names(tensors, side, what)
    shape_of = source_shape if side is SOURCE else target_shape
    found = []
    for name in side:
        x = tensors[name] if number is None else tensors[name][number]
        shape = shape_of(name, device)
        said = f"{what}, {name} of device {device}"
        if (tuple(x.shape), x.dtype) != (shape, _dtype()):
            expected = f"{_dtype()} {shape}"
            raise ValueError(f"{said}: got {x.dtype} {tuple(x.shape)}, expected {expected}")
        turned = x.is_neg() or x.is_conj()
        if turned or (what == "out" and _overlaps(x)):
            kind = "a pending conjugation or negation" if turned else "overlapping elements"
            raise ValueError(f"{said}: got a view with {kind}, expected x.contiguous()")
        if x.requires_grad and torch.is_grad_enabled():
            why = "this module has no gradient: emit it with gradient=True (--gradient)"
            raise ValueError(f"{said}: requires a gradient, but {why}, or pass x.detach()")
        found.append(x)
    return found


def _overlaps(x):
    """Return whether two elements of a tensor may share memory."""
    reach = 0
    for step, size in sorted(zip(x.stride(), x.shape, strict=True)):
        if size > 1 and step <= reach:
            return x.numel() > 0
        reach += (size - 1) * step
    return False


if __name__ == "__main__":
    import sys

    print("this module has no self-check: run `shardwright verify FOLDER`", file=sys.stderr)
    sys.exit(2)
