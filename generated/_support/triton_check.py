"""What the pull kernel of a module copies, without data: it is run on plain integers."""

import math
import types

from .boxes import common, extents, spread, volume

# Of kernels with more programs in all, those of some devices are followed.
FOLLOWED = 2**18


def miscopied(move):
    """Return what a kernel copies that it should not, or leaves out, or the empty string."""
    tiles, ids = move.tiles, move.exchange.target.ids
    first = _first_blocks(tiles)
    later = tiles.programs(True) - first  # how far those of the last blocks are from these
    for receiver in spread(len(ids), followed(move)):
        found: dict = {piece: [] for piece in move.exchange.incoming(receiver)}
        for program in range(first if found else 0):
            copy, last = (_copied(move, ids[receiver], n) for n in (program, program + later))
            right = last == {**copy, "block": later // first} if copy else not last
            if not right or (copy and not _noted(move, receiver, copy, found)):
                return f"device {ids[receiver]}: wrong copy by the kernel, {copy or last}"
        for piece, boxes in found.items():
            if not _tiled(piece.box, boxes):
                return f"device {ids[receiver]}: the kernel does not fill {piece.box}"
    return ""


def followed(move):
    """Return of how many devices the kernel is followed at most."""
    return max(FOLLOWED // _first_blocks(move.tiles), 1)


def _first_blocks(tiles):
    """Return how many programs of a device copy first blocks."""
    return tiles.number * math.prod(tiles.largest[:-2])


def _copied(move, device, program):
    """Return what one program copies: the arguments of `copy_rows` and the sender, or None."""
    calls, kernel = [], move.kernel.fn

    def copy(sender, out, **given):
        if min(given["rows"], given["columns"]) > 0:
            calls.append({"sender": sender, **given})

    integers = types.SimpleNamespace(int64=int, cast=lambda value, kind: value)
    integers.program_id = lambda axis: program
    integers.where = lambda test, one, other: one if test else other
    names = {"tl": integers, "copy_rows": copy, "copy_some_lines": copy}
    names["shard_at"] = lambda peers, position, out, lanes: position
    run = types.FunctionType(kernel.__code__, {**kernel.__globals__, **names})
    run(None, None, *move.places(device), *move.tiles.constants(True))
    return calls[0] if calls else None


def _noted(move, receiver, copy, found):
    """Note the box of a first block's copy under the piece that it is of; return whether there is
    one, and `Tiles` allows for the copy."""
    sender, rows, columns = copy["sender"], copy["rows"], copy["columns"]
    if copy["block"] or sender not in range(len(move.exchange.source.ids)):
        return False
    ends = (move.exchange.source.box(sender), "read"), (move.exchange.target.box(receiver), "write")
    groups = [((columns, 1), (rows, copy[f"{end}_row"])) for _, end in ends]
    read, write = (_covered(box, copy[end], g) for (box, end), g in zip(ends, groups, strict=True))
    mine = (piece for piece in found if read and piece.sender == sender)
    piece = next((piece for piece in mine if common(piece.box, read) == read == write), None)
    unit, lanes, *_ = move.tiles.constants(True)
    unit *= 1 if "copy_some_lines" in move.kernel.fn.__code__.co_names else lanes
    steps = [copy["read_row"], copy["write_row"]] if rows > 1 else []
    fits = all(n % unit == 0 for n in (copy["read"], copy["write"], columns, *steps))
    most, longest = (1, *move.tiles.largest)[-2:]
    if piece is None or not fits or rows > most or columns > longest:
        return False
    found[piece].append(read)
    return True


def _covered(within, start, groups):
    """Return the box of the tensor that elements of a shard cover, in order, or None: from the
    element `start` on, groups of (extent, stride), minor to major. The shard covers `within`."""
    shape = extents(within)
    strides = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
    if not 0 <= start < math.prod(shape):
        return None
    low = [start // stride % extent for stride, extent in zip(strides, shape, strict=True)]
    found, dim = [1] * len(shape), len(shape)
    for extent, stride in groups:
        if extent > 1:
            dim = max((k for k in range(dim) if strides[k] == stride), default=-1)
        while extent > 1:
            held = min(extent, shape[dim])
            if dim < 0 or low[dim] + held > shape[dim] or extent % held:
                return None
            found[dim], extent = held, extent // held
            dim -= extent > 1
    starts = [first + at for first, at in zip(within[::2], low, strict=True)]
    return tuple(end for at, held in zip(starts, found, strict=True) for end in (at, at + held))


def _tiled(box, parts):
    """Return whether boxes of one shape tile a box, each at a multiple of its extents."""
    shapes, places = {extents(part) for part in parts}, {part[::2] for part in parts}
    if len(shapes) != 1 or len(places) != len(parts) or sum(map(volume, parts)) != volume(box):
        return False
    steps = [zip(place, box[::2], *shapes, strict=True) for place in places]
    return all((at - low) % extent == 0 for step in steps for at, low, extent in step)
