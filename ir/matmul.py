"""A matmul of two sharded operands: `C[…, i, k] = A[…, i, j] B[…, j, k]`.

A *factor* is an index of the formula; each dimension of an operand or of the result corresponds to
one factor. Factors are numbered: one for each batch dimension, then i, j and k:

    lhs  […, i, j]        rhs  […, j, k]        out  […, i, k]

All three tensors are on one mesh. If a tensor is unreduced along axes, the devices along these axes
have partial sums of it. Products are summed in float32, float64 or integers of 32 or 64 bits
(`sum_dtype`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from shardwright.ir.dtypes import dtype_of, is_floating, itemsize
from shardwright.ir.errors import InputError, in_a_line, known_arguments, one_of, wrong_type
from shardwright.ir.given import mesh_of, shape_of, sharding_of
from shardwright.ir.mesh import Mesh
from shardwright.ir.reshard import Reshard
from shardwright.ir.sharding import Sharding
from shardwright.ir.text.index_notation import INDEXED, index_names

Side = Literal["lhs", "rhs", "out"]
SIDES: tuple[Side, ...] = ("lhs", "rhs", "out")


@dataclass(frozen=True)
class Operand:
    """The shape and the sharding of a tensor."""

    shape: tuple[int, ...]
    sharding: Sharding


@dataclass(frozen=True, init=False)
class Matmul:
    """A matmul: the element types, the operands, and the sharding of the result.

    `dtype`: the element type of both operands. `out_dtype`: the element type of the result, and of
    the partial sums that devices exchange. With bfloat16 operands and `out_dtype` float32, no sum
    is rounded to bfloat16.
    """

    dtype: str
    lhs: Operand
    rhs: Operand
    out: Sharding
    out_dtype: str

    @known_arguments
    def __init__(
        self,
        dtype: object,
        lhs: object,
        rhs: object,
        out: object,
        out_dtype: object = None,
        *,
        mesh: object = None,
    ) -> None:
        """Convert the arguments to canonical form.

        `lhs`, `rhs`: pairs (shape, sharding). `out`: the sharding of the result. `out_dtype`: by
        default `dtype`. `mesh`: the mesh of shardings that have none; by default, rhs and out are
        on the mesh of lhs. In index notation, `A[I_X, J]`, equal indices must denote the same
        factor. Raises InputError for operands that cannot be multiplied, for booleans, and for
        tensors on different meshes.
        """
        self._set(dtype=dtype_of(dtype))
        own = None if mesh is None else mesh_of(mesh, "mesh")
        first = _operand(lhs, own, "lhs")
        second = _operand(rhs, own or first.sharding.mesh, "rhs")
        _check_shapes(first.shape, second.shape)
        self._set(lhs=first, rhs=second)
        self._set(out=_sharding(out, own or self.mesh, self.out_shape, "out"))
        _check_names(self, (_text_of(lhs), _text_of(rhs), out))
        _check_dtype(self.dtype)
        self._set(out_dtype=self.dtype if out_dtype is None else _out_dtype(out_dtype))
        _check_out_dtype(self)
        for name, sharding in (("rhs", self.rhs.sharding), ("out", self.out)):
            _check_mesh(name, sharding.mesh, self.mesh)
        for side in SIDES:  # raises InputError if the bytes of a tensor do not fit into 64 bits
            whole = self.sharding(side)
            Reshard(self.shape(side), self.dtype_of(side), whole, whole)

    def _set(self, **fields: object) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @property
    def mesh(self) -> Mesh:
        """The mesh of all three tensors."""
        return self.lhs.sharding.mesh

    @property
    def batch(self) -> int:
        """The number of batch dimensions."""
        return len(self.lhs.shape) - 2

    @property
    def extents(self) -> tuple[int, ...]:
        """The extent of each factor."""
        return (*self.lhs.shape, self.rhs.shape[-1])

    @property
    def out_shape(self) -> tuple[int, ...]:
        return (*self.lhs.shape[:-1], self.rhs.shape[-1])

    @property
    def sum_dtype(self) -> str:
        """The dtype in which products are summed."""
        if is_floating(self.dtype):
            return "float64" if self.dtype == "float64" else "float32"
        wide = "64" if itemsize(self.dtype) == 8 else "32"
        return ("uint" if self.dtype.startswith("uint") else "int") + wide

    @property
    def flops(self) -> int:
        """The number of multiplications plus additions. Each is counted once, even if several
        devices perform it."""
        return 2 * math.prod(self.extents)

    def factors(self, side: Side) -> tuple[int, ...]:
        """Return, for each dimension of an operand or of the result, the number of its factor."""
        batch = tuple(range(self.batch))
        i, j, k = (self.batch + each for each in range(3))
        last = {"lhs": (i, j), "rhs": (j, k), "out": (i, k)}
        return (*batch, *last[side])

    def factor_name(self, factor: int) -> str:
        """Return the name of a factor: `i`, `j`, `k`, or `batch 0` and so on."""
        return "ijk"[factor - self.batch] if factor >= self.batch else f"batch {factor}"

    def shape(self, side: Side) -> tuple[int, ...]:
        """Return the shape of an operand or of the result."""
        return tuple(self.extents[factor] for factor in self.factors(side))

    def sharding(self, side: Side) -> Sharding:
        """Return the sharding of an operand or of the result."""
        return {"lhs": self.lhs.sharding, "rhs": self.rhs.sharding, "out": self.out}[side]

    def dtype_of(self, side: Side) -> str:
        """Return the element type of an operand or of the result."""
        return self.out_dtype if side == "out" else self.dtype


def _operand(given: object, mesh: Mesh | None, name: str) -> Operand:
    """Read an operand given as an `Operand` or as a pair (shape, sharding). Raise InputError,
    naming the operand, for anything else."""
    pair = (given.shape, given.sharding) if isinstance(given, Operand) else given
    example = """((8, 16), mesh.sharding('[{"x"}, {}]'))"""
    if not isinstance(pair, tuple | list):
        raise wrong_type(given, tuple, example, name)
    if len(pair) != 2 or isinstance(pair[1], int):
        raise InputError(
            "an operand must be a pair of a shape and a sharding",
            argument=name,
            got=in_a_line(given),
            expected=example,
        )
    try:
        shape = shape_of(pair[0])
    except InputError as error:
        raise error.named(name) from None
    if len(shape) < 2:
        raise InputError(
            "an operand of a matmul must have at least two dimensions",
            argument=name,
            got=f"{len(shape)} dimension{'s' * (len(shape) != 1)}",
            expected="(…, i, j) for lhs or (…, j, k) for rhs; for a vector, a matrix of one row",
        )
    return Operand(shape, _sharding(pair[1], mesh, shape, name))


def _sharding(given: object, mesh: Mesh | None, shape: tuple[int, ...], argument: str) -> Sharding:
    found = sharding_of(given, mesh, shape, argument, only=False)
    if found.split == "nested":
        raise InputError(
            'operands and results of a matmul must have split="flat"',
            argument=argument,
            got="placements that cut an uneven dimension chunk by chunk",
            expected="a Sharding in place of placements; reshard the tensor to it first",
        )
    try:
        return found.sharding.for_rank(len(shape))
    except InputError as error:
        raise error.named(argument) from None


def _out_dtype(given: object) -> str:
    try:
        return dtype_of(given)
    except InputError as error:
        raise error.named("out_dtype") from None


def _check_shapes(lhs: tuple[int, ...], rhs: tuple[int, ...]) -> None:
    if len(lhs) != len(rhs):
        raise InputError(
            "both operands must have the same batch dimensions",
            argument="rhs",
            got=f"{len(rhs) - 2} in rhs {_text(rhs)}, {len(lhs) - 2} in lhs {_text(lhs)}",
            expected=f"{len(lhs) - 2} batch dimensions, {_text(lhs[:-2])}"
            if len(lhs) > 2
            else "two dimensions",
        )
    if lhs[-1] != rhs[-2]:
        raise InputError(
            "the last dimension of lhs and the second to last of rhs must have the same extent",
            argument="rhs",
            got=f"lhs {_text(lhs)} and rhs {_text(rhs)}: {lhs[-1]} and {rhs[-2]} differ",
            expected=f"an rhs of {_text((*rhs[:-2], lhs[-1], rhs[-1]))}, or a different lhs",
        )
    if lhs[:-2] != rhs[:-2]:
        raise InputError(
            "both operands must have the same batch dimensions",
            argument="rhs",
            got=f"{_text(rhs[:-2])} in rhs, {_text(lhs[:-2])} in lhs",
            expected=f"an rhs of {_text((*lhs[:-2], *rhs[-2:]))}, or a different lhs",
        )


def _text_of(given: object) -> object:
    return given[1] if isinstance(given, tuple | list) else None


def _check_names(matmul: Matmul, given: tuple[object, ...]) -> None:
    """Raise InputError unless shardings in index notation use the same index for the same factor,
    and different indices for different factors."""
    known: dict[int, str] = {}
    for side, text in zip(SIDES, given, strict=True):
        if not isinstance(text, str) or not INDEXED.match(text):
            continue
        for factor, name in zip(matmul.factors(side), index_names(text), strict=True):
            other = next((each for each, said in known.items() if said == name), factor)
            if known.setdefault(factor, name) != name or other != factor:
                raise InputError(
                    "the last index of lhs must be the second to last of rhs, and the result must "
                    "have the other indices in order",
                    argument=side,
                    got=text,
                    expected="A[I, J], B[J, K] and C[I, K], each with the same batch indices first",
                )


def _check_mesh(argument: str, mesh: Mesh, other: Mesh) -> None:
    if mesh == other:
        return
    raise InputError(
        "the operands and the result of a matmul must be on the same mesh",
        argument=argument,
        got=str(mesh),
        expected=f"{other}, the mesh of lhs; reshard the tensor to it first",
    )


def _check_dtype(dtype: str) -> None:
    if dtype != "bool":
        return
    raise InputError(
        "the dtype of a matmul must support addition, which booleans do not",
        argument="dtype",
        got="bool",
        expected="an integer or a floating dtype, such as int8",
    )


def _check_out_dtype(matmul: Matmul) -> None:
    known = tuple(dict.fromkeys((matmul.dtype, matmul.sum_dtype)))
    if matmul.out_dtype in known:
        return
    raise InputError(
        "the result must have the dtype of the operands or of the accumulator",
        argument="out_dtype",
        got=matmul.out_dtype,
        expected=one_of(known),
    )


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "none"
