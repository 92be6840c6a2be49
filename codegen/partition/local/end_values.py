"""The values of a program whose ends are padded, and the ops that pad, mask and cut them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from shardwright.codegen.ops.fills import FLOATS
from shardwright.codegen.ops.kind import NONE, Dims
from shardwright.ir.program import Op, Param, Program, Value


class EndValues:
    """The values of a program, with their original shapes in `given` and their padded shapes in
    `now`. `ends`: the padded dimensions of each value; `extents`: maps each extent that axes do not
    divide to the padded extent."""

    def __init__(self, program: Program, extents: Mapping[int, int]) -> None:
        self.given, self.now = list(program.values), list(program.values)
        self.ends: list[Dims] = [NONE] * len(self.now)
        self.extents = extents
        self.names = {value.name for value in self.now}

    def is_wanted(self, value: int, dim: int) -> bool:
        """Return whether a dimension of a value should be padded: its axes do not divide it, and it
        can be padded."""
        own = self.given[value]
        extent = own.shape[dim]
        parts = 1 if own.sharding is None else own.sharding.parts(dim)
        return extent in self.extents and extent % parts > 0 and parts <= extent

    def shape(self, value: int, dims: Dims) -> tuple[int, ...]:
        """Return the shape of a value whose dimensions `dims` are padded."""
        pairs = enumerate(self.given[value].shape)
        return tuple(self.extents[extent] if dim in dims else extent for dim, extent in pairs)

    def pad(self, value: int, dims: Dims) -> None:
        """Make `dims` the padded dimensions of a value."""
        self.now[value] = replace(self.now[value], shape=self.shape(value, dims))
        self.ends[value] = dims

    def new(self, like: Value, role: str, dims: Dims = NONE) -> int:
        """Add a value of the type of `like` whose dimensions `dims` are padded, and return its
        number. `role`: the end of its name."""
        long = f"{like.name}_{role}"
        role = long if len(long) < 24 else role
        name, count = role, 2
        while name in self.names:
            name, count = f"{role}_{count}", count + 1
        self.names.add(name)
        for values in (self.given, self.now):
            values.append(replace(like, name=name))
        self.ends.append(NONE)
        self.pad(len(self.now) - 1, dims)
        return len(self.now) - 1

    def version(self, value: int, role: str, dims: Dims) -> int:
        """Add a version of a value with other padding, and return its number."""
        like = self.given[value]
        return self.new(replace(like, version_of=like.version_of or like.name), role, dims)


class PaddedBody:
    """The ops of one body under construction. `unread`: the number in padded rows that no op reads,
    which a test sets to NaN."""

    unread: float = 0.0

    def __init__(self, values: EndValues) -> None:
        self.values = values
        self.ops: list[Op] = []
        self.constant: set[int] = set()  # values that depend only on constants
        self.made: dict[object, int] = {}

    def add(self, op: Op) -> None:
        """Append an op, and record whether its results depend only on constants."""
        self.ops.append(op)
        if op.kind in ("constant", "iota", "broadcast_in_dim") and self.constant.issuperset(
            op.operands
        ):
            self.constant.update(op.results)

    def version(self, value: int, dims: Dims) -> int:
        """Return the version of a value in which exactly the dimensions `dims` are padded."""
        if dims == self.values.ends[value]:
            return value
        key = value, dims
        if key not in self.made:
            self.made[key] = self._padded(self._cut(value, dims), dims)
        return self.made[key]

    def _cut(self, value: int, dims: Dims) -> int:
        """Return a value without its padding in dimensions that are not among `dims`."""
        values, kept = self.values, self.values.ends[value] & dims
        if kept == values.ends[value]:
            return value
        shape = values.shape(value, kept)
        made = values.version(value, "rows", kept)
        params = ("limit_indices", shape), ("start_indices", (0,) * len(shape)), ("strides", None)
        self.add(Op("slice", (value,), (made,), params, line=values.given[value].line))
        return made

    def _padded(self, value: int, dims: Dims) -> int:
        values, own = self.values, self.values.ends[value]
        if dims == own:
            return value
        like = values.given[value]
        made = values.version(value, "padded", dims)
        pairs = zip(values.now[value].shape, values.now[made].shape, strict=True)
        config = tuple((0, after - before, 0) for before, after in pairs)
        operands = value, self.number(0, like)
        self.add(Op("pad", operands, (made,), (("padding_config", config),), line=like.line))
        return made

    def number(self, number: Param, like: Value) -> int:
        if like.dtype == "bool":
            number = bool(number)
        elif like.dtype[0] in "fb" and isinstance(number, int):
            number = float(number)
        return self._made("constant", (), _scalar(like, like.dtype), value=number)

    def masked(self, value: int, dims: Dims, number: Param = 0, fill: int | None = None) -> int:
        """Return a padded value whose padded rows along `dims` are `number` or, if given, the
        scalar value `fill`."""
        key = value, dims, number, fill
        if key not in self.made:
            like = self.values.given[value]
            made = self.values.new(like, "masked", self.values.ends[value])
            self.mask(value, made, dims, self.number(number, like) if fill is None else fill)
            self.made[key] = made
        return self.made[key]

    def mask(self, value: int, made: int, dims: Dims, fill: int) -> None:
        """Append the ops that set the padded rows of a value along `dims` to `fill`. The result is
        `made`."""
        like = self.values.now[made]
        inside = None
        for dim in sorted(dims):
            own = self._before(like, dim, self.values.given[made].shape[dim])
            both = replace(like, dtype="bool")
            inside = own if inside is None else self._made("and", (inside, own), both)
        filled = self._spread(fill, like)
        if inside is not None:
            self.add(Op("select_n", (inside, filled, value), (made,), line=like.line))

    def select(self, dim: int, row: int, pair: tuple[int, int], made: int) -> None:
        """Append the op that takes rows before `row` from the first value of a pair, and other rows
        from the second. Its result is `made`."""
        first, ends = pair[0], self.values.ends[pair[0]]
        self.values.pad(made, ends)
        inside = self._before(self.values.now[made], dim, row)
        operands = inside, self.version(pair[1], ends), first
        self.add(Op("select_n", operands, (made,), line=self.values.given[made].line))

    def _before(self, like: Value, dim: int, row: int) -> int:
        """Return a boolean value in the shape of `like` that is true for rows before `row` along a
        dimension."""
        sharding = like.sharding and replace(like.sharding, dims=(like.sharding.dims[dim],))
        rows = replace(like, shape=(like.shape[dim],), sharding=sharding, dtype="i32")
        numbers = self._made("iota", (), rows, dimension=0, dtype="int32", shape=rows.shape)
        end = self._spread(self._made("constant", (), _scalar(like, "i32"), value=row), rows)
        tests = self._made("lt", (numbers, end), replace(rows, dtype="bool"))
        return self._made(
            *("broadcast_in_dim", (tests,), replace(like, dtype="bool")),
            broadcast_dimensions=(dim,),
            shape=like.shape,
        )

    def bounded(self, indices: int, extent: int, beyond: int | None) -> int:
        """Replace indices of at least `extent` by `beyond` or, if that is None, by the last row
        before `extent`."""
        like, ends = self.values.given[indices], self.values.ends[indices]
        now = self.values.now[indices]
        made = self.values.new(like, "indices", ends)
        last = self._spread(self.number(extent - 1, like), now)
        if beyond is None:
            self.add(Op("min", (indices, last), (made,), line=like.line))
            return made
        test = self._made("le", (indices, last), replace(now, dtype="bool"))
        filled = self._spread(self.number(beyond, like), now)
        self.add(Op("select_n", (test, filled, indices), (made,), line=like.line))
        return made

    def is_varied(self, value: int) -> bool:
        """Return whether a value may have a gradient: it has a float dtype and depends on more than
        constants."""
        return self.values.given[value].dtype in FLOATS and value not in self.constant

    def spread(self, scalar: int, result: int, dims: Dims) -> int:
        """Broadcast a scalar to the shape of a result whose dimensions `dims` are padded. The
        padded rows are zero, so that they add nothing to the gradient of the scalar."""
        like = replace(self.values.given[result], dtype=self.values.given[scalar].dtype)
        every = self._spread(scalar, replace(like, shape=self.values.shape(result, dims)))
        made = self.values.new(like, "rows", dims)
        self.mask(every, made, dims, self.number(0, like))
        return made

    def _spread(self, scalar: int, like: Value) -> int:
        own = replace(like, dtype=self.values.now[scalar].dtype)
        params = {"broadcast_dimensions": (), "shape": like.shape}
        return self._made("broadcast_in_dim", (scalar,), own, **params)

    def _made(self, kind: str, operands: tuple[int, ...], like: Value, **params: Param) -> int:
        made = self.values.new(like, "end")
        self.add(Op(kind, operands, (made,), tuple(sorted(params.items())), line=like.line))
        return made

    def results(self, op: Op, ends: Sequence[Dims], is_zero: bool) -> None:
        """Append an op whose results have padded ends. `is_zero`: whether to zero the padded rows
        of float results; integers have no gradients, so their rows stay as they are."""
        values, raw, masked = self.values, list(op.results), []
        for place, (result, dims) in enumerate(zip(op.results, ends, strict=True)):
            values.pad(result, dims)
            if is_zero and dims and values.given[result].dtype in FLOATS:
                raw[place] = values.new(values.given[result], "every", dims)
                masked.append((raw[place], result, dims))
        self.add(replace(op, results=tuple(raw)))
        for made, result, dims in masked:
            self.mask(made, result, dims, self.number(self.unread, values.given[result]))


def _scalar(like: Value, dtype: str) -> Value:
    sharding = like.sharding and replace(like.sharding, dims=())
    return replace(like, shape=(), sharding=sharding, dtype=dtype)
