"""Record the copies of an emitted pulling kernel on a device, without data.

The kernel's code runs on plain integers, with stand-ins for `triton.language` and for the functions
that copy rows, which record their arguments. That takes no memory for data, so it works at full
size.
"""

from __future__ import annotations

from functools import partial
from types import FunctionType, SimpleNamespace
from typing import Any, NamedTuple

from shardwright.codegen.checks.compare import MismatchError

ONE_EACH = 2**62
"""A number of programs that exceeds the number of blocks of any launch."""

COPIES = ("copy_rows", "copy_some_lines")
"""The support functions that copy a block of rows."""


class RowCopy(NamedTuple):
    """A copy of a block of a tile, in elements. `sender`: the position of the source shard; `read`,
    `write`: where the tile's first row starts in the source and in the target shard; `rows`,
    `columns`: the number of its rows and their length; `read_row`, `write_row`: the distance
    between rows in both shards; `block`: the number of the block; `by`: the function in COPIES that
    copies it, or "rows_at" if it is reduced."""

    sender: int
    read: int
    write: int
    rows: int
    columns: int
    read_row: int
    write_row: int
    block: int
    by: str


def trace(host: Any, device: int, program: int) -> tuple[RowCopy, ...]:
    """Return the copies of one program of the kernel on a device: none, or one block of a shard. If
    the kernel reduces terms, return one block of each of several shards, in order.

    Raises MismatchError for a kernel that cannot run with stand-ins, or that stores twice.
    """
    stored: list[tuple[RowCopy, ...]] = []
    kernel = host.kernel.fn
    language = (_ReducingLanguage if host.reduces else _PlainLanguage)(program, stored)
    names: dict[str, Any] = {"tl": language, "shard_at": _position}
    names |= {by: partial(language.copy, by) for by in COPIES}
    names["rows_at"] = lambda **given: (_SourceRows(given), _WRITE, _INSIDE)
    if isinstance(language, _ReducingLanguage):
        names["read_once"] = language.read_once
    try:
        run = FunctionType(kernel.__code__, {**kernel.__globals__, **names})
        run(None, 0, *host.places(device), host.tiles.block())
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        NameError,
        TypeError,
        ValueError,
    ) as error:
        raise MismatchError(f"the kernel cannot be followed: {error}") from error
    if len(stored) > 1:
        raise MismatchError(f"one program copies twice: {', '.join(str(c[0]) for c in stored)}")
    return stored[0] if stored else ()


def _position(peers: object, position: int, out: object, block: object) -> int:
    del peers, out, block
    return position


class _TargetRows:
    def __radd__(self, out: int) -> _TargetRows:
        return self


class _SourceRows:
    """A stand-in for the offsets of a block of rows in a source shard. Added to the position of a
    shard, it is the block in that shard."""

    def __init__(self, given: dict[str, int]) -> None:
        self._given = given

    def __radd__(self, sender: int) -> _TermRows:
        return _TermRows((_copied("rows_at", sender, self._given),))


class _TermRows:
    """A stand-in for the reduction of blocks of rows; `copies`: the blocks, in order."""

    def __init__(self, copies: tuple[RowCopy, ...] = ()) -> None:
        self.copies = copies

    def __add__(self, other: _TermRows) -> _TermRows:
        return _TermRows(self.copies + other.copies)

    def to(self, kind: object) -> _TermRows:
        """Return the same blocks, since their element type does not matter."""
        del kind
        return self


_WRITE, _INSIDE = _TargetRows(), object()
"""The stand-ins for the offsets of a block in the target shard, and for its mask."""


class _PlainLanguage:
    """A stand-in for `triton.language` in one program. It records stores."""

    int32 = int64 = int

    def __init__(self, program: int, stored: list[tuple[RowCopy, ...]]) -> None:
        self._program, self._stored = program, stored

    def program_id(self, axis: int) -> int:
        del axis
        return self._program

    def num_programs(self, axis: int) -> int:
        """Return more than the number of blocks, so that each program copies at most one."""
        del axis
        return ONE_EACH

    def cast(self, value: int, kind: object) -> int:
        del kind
        return value

    def where(self, test: bool, one: int, other: int) -> int:
        return one if test else other

    def copy(self, by: str, sender: int, out: object, **given: int) -> None:
        del out
        self.note((_copied(by, sender, given),))

    def note(self, copies: tuple[RowCopy, ...]) -> None:
        if copies and min(copies[0].rows, copies[0].columns) > 0:
            self._stored.append(copies)


class _ReducingLanguage(_PlainLanguage):
    """A stand-in for `triton.language` with the additional names that reducing kernels use."""

    static_range = range
    float32 = float64 = float16 = bfloat16 = float8e4nv = float8e5 = float
    int8 = int16 = uint8 = uint16 = uint32 = int
    PropagateNan = SimpleNamespace(ALL=None, NONE=None)

    def full(self, shape: object, value: object, kind: object) -> _TermRows:
        del shape, value, kind
        return _TermRows()

    def read_once(self, term: _TermRows, mask: object) -> _TermRows:
        """Return a term after loading it. Raises ValueError if the mask belongs to another
        block."""
        self._check(mask)
        return term

    def maximum(self, total: _TermRows, term: _TermRows, propagate_nan: None = None) -> _TermRows:
        del propagate_nan
        return total + term

    minimum = maximum

    def store(self, place: object, total: _TermRows, mask: object) -> None:
        """Record the store of a reduction. Raises ValueError unless both its place and its mask are
        right."""
        self._check(mask)
        if place is not _WRITE:
            raise ValueError("the reduced block is stored at the wrong place")
        self.note(total.copies)

    def _check(self, mask: object) -> None:
        if mask is not _INSIDE:
            raise ValueError("the kernel loads or stores outside its block")


def _copied(by: str, sender: int, given: dict[str, int]) -> RowCopy:
    read, write, rows, columns, read_row, write_row, block = (
        int(given[name]) for name in RowCopy._fields[1:-1]
    )
    return RowCopy(sender, read, write, rows, columns, read_row, write_row, block, by)
