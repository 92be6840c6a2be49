"""Convert the `sharding_rule` of `custom_partitioning` to a rule.

Each factor of the notation becomes a factor of the rule. Unlike in JAX, factors with several sizes
and reduced factors are not split, because the user does not state whether the function itself sums
over devices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from jax.experimental.custom_partitioning import BATCHING, custom_partitioning
from jax.sharding import AbstractMesh

from shardwright.codegen.ops.build import Builder, Shape
from shardwright.ir.errors import InputError
from shardwright.ir.mesh import Mesh
from shardwright.ir.program import Line, Rule


def read_rule(params: Any, mesh: Mesh, line: Line | None) -> Rule:
    """Return the rule of a `custom_partitioning` equation on a mesh.

    Raise InputError if the rule does not fit the ranks and extents of the call.
    """
    call = params["call"]
    shapes = tuple(tuple(tuple(a.shape) for a in side) for side in (call.in_avals, call.out_avals))
    try:
        stated = _stated(params, mesh)
        return _rule(stated, *shapes)
    except ValueError as error:
        raise InputError(
            "sharding_rule must fit the function under custom_partitioning",
            argument="fn",
            got=f"{params['sharding_rule']}{f', {line}' if line else ''}",
            expected=str(error),
        ) from None


def _stated(params: Any, mesh: Mesh) -> Any:
    """Return JAX's object for the rule. The user may have given it as a function of the mesh and
    the types."""
    stated, call = params["sharding_rule"], params["call"]
    if not callable(stated):
        return stated
    sides = (
        [SimpleNamespace(shape=[*a.shape], rank=a.ndim, dtype=a.dtype) for a in side]
        for side in (call.in_avals, call.out_avals)
    )
    abstract = AbstractMesh(tuple(mesh.sizes.values()), tuple(mesh.sizes))
    made = stated(*params["static_args"], abstract, *sides)
    text, factors = made if isinstance(made, tuple | list) else (made, {})
    if not isinstance(text, str):
        return text
    reader = custom_partitioning(lambda x: x)
    reader.def_partition(lambda *_: None, sharding_rule=text, **factors)
    return reader.sharding_rule


def _rule(stated: Any, operands: Sequence[Shape], results: Sequence[Shape]) -> Rule:
    """Return the rule, with factors numbered by first use.

    Raises ValueError if it does not fit the shapes.
    """
    sides = (
        (stated.operand_mappings, operands, "operands"),
        (stated.result_mappings, results, "results"),
    )
    for mappings, shapes, side in sides:
        if len(mappings) != len(shapes):
            raise ValueError(f"a rule for {len(shapes)} {side}; it has {len(mappings)}")
    mappings = (*stated.operand_mappings, *stated.result_mappings)
    shapes = (*operands, *results)
    tensors = [_factors(*pair) for pair in zip(mappings, shapes, strict=True)]
    sizes: dict[str, set[int]] = {}
    for dims, shape in zip(tensors, shapes, strict=True):
        for factors, extent in zip(dims, shape, strict=True):
            if len(factors) == 1:
                sizes.setdefault(factors[0], set()).add(extent)
    for factor, size in stated.factor_sizes.items():
        sizes[factor] = {size}
    build = Builder(tuple(operands), tuple(results))
    kinds = {
        **dict.fromkeys(stated.permutation_factors, "permutation"),
        **dict.fromkeys(stated.reduction_factors, "reduction"),
        **dict.fromkeys(stated.need_replication_factors, "need_replication"),
        **{name: "need_replication" for name, found in sizes.items() if len(found) > 1},
    }
    numbers: dict[str, int] = {}
    for tensor, (dims, shape) in enumerate(zip(tensors, shapes, strict=True)):
        for dim, (factors, extent) in enumerate(zip(dims, shape, strict=True)):
            if len(factors) > 1 and math.prod(min(sizes[f]) for f in factors) != extent:
                raise ValueError(f"sizes of ({' '.join(factors)}) whose product is {extent}")
            for factor in factors:
                if factor not in numbers:
                    numbers[factor] = len(numbers)
                    build.factor(min(sizes[factor]), {}, kinds.get(factor, "pass"))
                build.dims[tensor][dim].append(numbers[factor])
    return build.rule()


def _factors(mapping: Sequence[Any], shape: Shape) -> list[tuple[str, ...]]:
    """Return the names of the factors of each dimension. An ellipsis stands for leading dimensions,
    whose factors are numbered from the left.

    Raises ValueError if the number of dimensions does not fit.
    """
    first = mapping[0] if mapping else ""
    has_batch = isinstance(first, str) and first.startswith(BATCHING)
    named = mapping[1:] if has_batch else mapping
    batch = len(shape) - len(named)
    if batch < 0 or (batch and not has_batch):
        raise ValueError(f"{len(shape)} dimensions for {list(shape)}; the rule has {len(named)}")
    group = first[len(BATCHING) :] or "0" if has_batch else ""
    leading = [(f"{BATCHING}{group}_{dim}",) for dim in range(batch)]
    return [*leading, *((each,) if isinstance(each, str) else tuple(each) for each in named)]
