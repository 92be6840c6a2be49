"""The kinds of ops, grouped by the construction of their rule, and the operands in which they are
linear."""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PASSED = _words("transpose reshape squeeze constrain dynamic_slice dynamic_update_slice")
REDUCTIONS = _words(
    """argmax argmin reduce_and reduce_max reduce_min reduce_or reduce_prod reduce_sum reduce_xor"""
)
CUMULATIVE = _words("cumlogsumexp cummax cummin cumprod cumsum")
WINDOWS = _words("reduce_window reduce_window_max reduce_window_min reduce_window_sum")
SCATTERS = _words("scatter scatter-add scatter-max scatter-min scatter-mul")
CONSTANT = _words("axis_index constant iota random_seed random_wrap random_unwrap")
OPAQUE = _words("custom_partitioning pallas_call")
CONTROL = _words("scan while cond remat manual")
MATRICES: dict[str, int] = {
    **dict.fromkeys(
        _words(
            """cholesky eig eigh geqrf hessenberg householder_product lu ormqr qr schur svd
    tridiagonal"""
        ),
        2,
    ),
    **dict.fromkeys(("lu_pivots_to_permutation", "tridiagonal_solve"), 1),
}
"""Ops that treat each matrix of a batch separately. The number is that of the trailing dimensions
of the first operand that form a matrix; all earlier dimensions are batch dimensions."""

# The operands in which an op is linear, which may therefore be partial sums. A tuple: any one of
# these operands, if the others are reduced; "all": all operands together.
LINEAR: dict[str, tuple[int, ...] | str] = {
    **dict.fromkeys(("add", "add_any", "sub", "concatenate", "select_and_gather_add"), "all"),
    **dict.fromkeys(
        _words(
            """broadcast_in_dim constrain conj convert_element_type copy cumsum imag neg pad real
    reduce_sum reduce_window_sum reshape rev slice split squeeze tile transpose dynamic_slice
    gather reduce_precision"""
        ),
        (0,),
    ),
    **dict.fromkeys(("mul", "dot_general", "ragged_dot_general", "conv_general_dilated"), (0, 1)),
    "div": (0,),
    "dynamic_update_slice": "all",
    "scatter-add": "all",
    "select_n": (1, 2),
    "select_and_scatter_add": (0,),
}
NOT_EXACT = frozenset({"convert_element_type", "reduce_precision"})  # linear up to rounding
