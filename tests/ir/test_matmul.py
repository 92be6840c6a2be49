"""`Matmul`: what it takes, what it refuses, and what a multiplication makes of it."""

from __future__ import annotations

from typing import Any

import pytest
from strategies import exactly, message

import shardwright as sw
from shardwright.ir.mesh import AxisRef
from shardwright.ir.multiplication import Multiplication

MESH = sw.Mesh({"x": 2, "y": 3})


def matmul(**changes: Any) -> sw.Matmul:
    given: dict[str, Any] = {
        "dtype": "bf16",
        "lhs": ((8, 12), '[{"x"}, {"y"}]'),
        "rhs": ((12, 6), "P('y')"),
        "out": '[{"x"}, {}]',
        "mesh": MESH,
    }
    return sw.Matmul(**(given | changes))


def test_it_keeps_what_people_have_in_canonical_form() -> None:
    made = matmul()
    assert (made.dtype, made.out_dtype, made.sum_dtype) == ("bfloat16", "bfloat16", "float32")
    assert str(made.rhs.sharding) == '[{"y"}, {}]'
    assert (made.extents, made.out_shape, made.flops) == ((8, 12, 6), (8, 6), 1152)
    assert made == matmul(dtype="bfloat16", rhs=((12, 6), '[{"y"}, {}]'))


def test_shardings_may_be_said_by_subscripts() -> None:
    """The example of "How to Scale Your Model"."""
    shapes = (8, 2048), (2048, 8192)
    made = sw.Matmul(
        "bf16",
        (shapes[0], "A[I_X, J_Y]"),
        (shapes[1], "B[J, K_Y]"),
        "C[I_X, K_Y]",
        mesh="X=4,Y=2",
    )
    lhs, rhs = (shapes[0], "P('X', 'Y')"), (shapes[1], "P(None, 'Y')")
    assert made == sw.Matmul("bf16", lhs, rhs, "P('X', 'Y')", mesh="X=4,Y=2")


def test_batch_dimensions_come_first() -> None:
    made = matmul(
        lhs=((2, 4, 8, 12), "P()"), rhs=((2, 4, 12, 6), "P('x')"), out="P(None, 'x', 'y')"
    )
    assert [made.factor_name(f) for f in range(5)] == ["batch 0", "batch 1", "i", "j", "k"]
    assert made.factors("rhs") == (0, 1, 3, 4)
    assert made.out_shape == (2, 4, 8, 6)


@pytest.mark.parametrize(
    ("dtype", "wanted"),
    [("float64", "float64"), ("int8", "int32"), ("uint8", "uint32"), ("int64", "int64")],
)
def test_what_products_are_summed_in(dtype: str, wanted: str) -> None:
    assert matmul(dtype=dtype).sum_dtype == wanted


MISTAKES = [
    (
        {"rhs": ((11, 6), "P('y')")},
        """rhs: the last dimension of lhs and the second to last of rhs must have the same extent
got: lhs 8x12 and rhs 11x6: 12 and 11 differ
expected: an rhs of 12x6, or a different lhs""",
    ),
    (
        {"rhs": ((2, 12, 6), "P('y')")},
        """rhs: both operands must have the same batch dimensions
got: 1 in rhs 2x12x6, 0 in lhs 8x12
expected: two dimensions""",
    ),
    (
        {"lhs": ((2, 8, 12), "P()"), "rhs": ((3, 12, 6), "P()"), "out": "P()"},
        """rhs: both operands must have the same batch dimensions
got: 3 in rhs, 2 in lhs
expected: an rhs of 2x12x6, or a different lhs""",
    ),
    (
        {"lhs": ((2, 3, 8, 12), "P()")},
        """rhs: both operands must have the same batch dimensions
got: 0 in rhs 12x6, 2 in lhs 2x3x8x12
expected: 2 batch dimensions, 2x3""",
    ),
    (
        {"lhs": ((2, 8, 12), "P()"), "rhs": ((2, 11, 6), "P()"), "out": "P()"},
        """rhs: the last dimension of lhs and the second to last of rhs must have the same extent
got: lhs 2x8x12 and rhs 2x11x6: 12 and 11 differ
expected: an rhs of 2x12x6, or a different lhs""",
    ),
    (
        {"lhs": ((12,), "P()")},
        """lhs: an operand of a matmul must have at least two dimensions
got: 1 dimension
expected: (…, i, j) for lhs or (…, j, k) for rhs; for a vector, a matrix of one row""",
    ),
    (
        {"lhs": ((8, 12), '[{"x"}, {"x"}]')},
        """lhs: an axis or sub-axis may be used only once
  [{"x"}, {"x"}]
           ^^^
got: "x" in dimension 0 and in dimension 1
expected: "x" in one place only""",
    ),
    (
        {"lhs": ((8, 12), "A[I_x, J_x]")},
        """lhs: an axis or sub-axis may be used only once
  A[I_x, J_x]
           ^
got: "x" in dimension 0 and in dimension 1
expected: "x" in one place only""",
    ),
    (
        {"lhs": ((8, 12), "A[I_x, J]"), "rhs": ((12, 6), "B[K_y, J]"), "out": "C[I_x, K]"},
        """rhs: the last index of lhs must be the second to last of rhs, and the result must have \
the other indices in order
got: B[K_y, J]
expected: A[I, J], B[J, K] and C[I, K], each with the same batch indices first""",
    ),
    (
        {"dtype": "bool"},
        """dtype: the dtype of a matmul must support addition, which booleans do not
got: bool
expected: an integer or a floating dtype, such as int8""",
    ),
    (
        {"out_dtype": "float64"},
        """out_dtype: the result must have the dtype of the operands or of the accumulator
got: float64
expected: one of bfloat16, float32""",
    ),
    (
        {"out": sw.Mesh({"x": 6}).sharding('[{"x"}, {}]')},
        """out: the operands and the result of a matmul must be on the same mesh
got: <["x"=6]>
expected: <["x"=2, "y"=3]>, the mesh of lhs; reshard the tensor to it first""",
    ),
    (
        {"out": "(Shard(0), Shard(0))", "lhs": ((7, 12), "P()")},
        """out: operands and results of a matmul must have split="flat"
got: placements that cut an uneven dimension chunk by chunk
expected: a Sharding in place of placements; reshard the tensor to it first""",
    ),
    (
        {"out": "P('x', 'y', None)"},
        """out: a PartitionSpec must not be longer than the rank of the tensor
  P('x', 'y', None)
  ^^^^^^^^^^^^^^^^^
got: P('x', 'y', None) for rank 2
expected: a length of at most 2""",
    ),
    (
        {"out": "P('x', 'z')"},
        """out: an axis must exist in the mesh
  P('x', 'z')
         ^^^
got: "z"
expected: one of "x", "y\"""",
    ),
    (
        {"out": '[{"x"}, {}], unreduced={"x"}'},
        """out: an axis or sub-axis may be used only once
  [{"x"}, {}], unreduced={"x"}
                          ^^^
got: "x" in dimension 0 and in unreduced={…}
expected: "x" in one place only""",
    ),
    (
        {"out": "[{}]"},
        """out: there must be one dimension sharding for each dimension of the tensor
  [{}]
  ^^^^
got: 1 dimension sharding for a tensor of rank 2
expected: 2 dimension shardings""",
    ),
]


@pytest.mark.parametrize(("changes", "wanted"), MISTAKES)
def test_mistakes(changes: dict[str, Any], wanted: str) -> None:
    assert message(lambda: matmul(**changes)) == wanted


@pytest.mark.parametrize("lhs", [(8, 12), ((8, 12), "P()", "P()"), (8, 12, 4)])
def test_operands_are_pairs(lhs: Any) -> None:
    assert message(lambda: matmul(lhs=lhs)) == (
        f"lhs: an operand must be a pair of a shape and a sharding\ngot: {lhs}\n"
        "expected: ((8, 16), mesh.sharding('[{\"x\"}, {}]'))"
    )


def test_a_multiplication_makes_partial_sums_along_the_axes_of_j() -> None:
    made = Multiplication(matmul(), ((AxisRef("x"),), (AxisRef("y"),), ()))
    assert str(made.shardings["out"]) == '[{"x"}, {}], unreduced={"y"}'
    assert (made.local_extents, made.flops) == ((4, 4, 6), 192)
    with pytest.raises(
        sw.InputError, match=exactly("an axis or sub-axis may be used only once")[:20]
    ):
        _ = Multiplication(matmul(), ((AxisRef("x"),), (AxisRef("x"),), ())).shardings
