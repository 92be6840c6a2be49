"""The sharding rule of a convolution."""

from __future__ import annotations

from collections.abc import Callable

from shardwright.codegen.ops.build import Builder, Shapes
from shardwright.ir.program import Op, Rule

Extents = tuple[int, int, int]  # dimensions of the input, the kernel and the output
Spatial = Callable[[Builder, Extents, tuple[int, int, int]], None]


def spatial_factors(build: Builder, extents: Extents, dims: tuple[int, int, int]) -> None:
    """Add the factors of one spatial dimension of input, kernel and output.

    If a stride gives the input `ratio` positions per output position, input and kernel share a
    reduction factor of size `ratio`. Otherwise the kernel's dimension is not split.
    """
    (source, kernel, target), (left, right, to) = extents, dims
    ratio = min(source // target, kernel)
    if target == 1 < ratio:
        build.factor(1, {2: to})
    else:
        build.factor(min(source, target), {0: left, 2: to}, kind="permutation")
    if ratio > 1:
        build.factor(ratio, {0: left, 1: right}, kind="reduction")
    else:
        build.factor(1, {1: right})


def convolution_rule(
    op: Op, operands: Shapes, results: Shapes, spatial: Spatial = spatial_factors
) -> Rule:
    """Return the rule of a convolution: batch and features as in a matmul, spatial dimensions as
    permutations, because shards exchange halos.

    `spatial`: a function that adds the factors of one spatial dimension.
    """
    build = Builder(operands, results)
    (lhs, rhs), (out,) = operands, results
    lhs_spec, rhs_spec, out_spec = (op.integers(f"{name}_spec") for name in ("lhs", "rhs", "out"))
    groups, batches = op.integers("feature_group_count")[0], op.integers("batch_group_count")[0]
    n, c, o = lhs_spec[0], lhs_spec[1], rhs_spec[0]
    if batches > 1:  # the group is the major factor of the batch and of the output's features
        build.factor(batches, {0: n, 1: o, 2: out_spec[1]})
    build.factor(lhs[n] // batches, {0: n, 2: out_spec[0]})
    if groups > 1:
        build.factor(groups, {0: c, 1: o, 2: out_spec[1]})
    build.factor(rhs[o] // (groups * batches), {1: o, 2: out_spec[1]})
    build.factor(lhs[c] // groups, {0: c, 1: rhs_spec[1]}, kind="reduction")
    for left, right, to in zip(lhs_spec[2:], rhs_spec[2:], out_spec[2:], strict=True):
        spatial(build, (lhs[left], rhs[right], out[to]), (left, right, to))
    return build.rule()
