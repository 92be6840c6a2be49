"""One call for each kind of op, and its rule beside Shardy's for the op it lowers to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import sdy_peer as peer
from jax import lax
from parity import by_kind

from shardwright.codegen.partition.entry import partition
from shardwright.codegen.propagate.rules import rule_of
from shardwright.ir.mesh import Mesh
from shardwright.ir.program import Op, Rule, Value
from shardwright.ir.program_text import format_rule, parse_rule

RULES = ("func.func(sdy-populate-op-sharding-rules)",)
NHWC = ("NHWC", "HWIO", "NHWC")


def f32(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def i32(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def conv(strides: Any, padding: Any, numbers: Any = NHWC, **more: Any) -> Callable[..., Any]:
    def run(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, strides, padding, dimension_numbers=numbers, **more)

    return run


def conv1(length: int, kernel: int, stride: int, padding: Any) -> tuple[Any, list[Any]]:
    numbers = ("NWC", "WIO", "NWC")
    return conv((stride,), padding, numbers), [f32(2, length, 4), f32(kernel, 4, 16)]


def reshape(source: tuple[int, ...], target: tuple[int, ...]) -> tuple[Any, list[Any]]:
    return (lambda x: x.reshape(target)), [f32(*source)]


CASES: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "slice": (lambda x: lax.slice(x, (0, 2), (8, 6)), [f32(8, 8)]),
    "slice with a stride": (lambda x: lax.slice(x, (0, 0), (8, 8), (1, 2)), [f32(8, 8)]),
    "pad": (lambda x: lax.pad(x, 0.0, ((0, 0, 0), (1, 2, 0), (0, 0, 1))), [f32(8, 8, 4)]),
    "pad less": (lambda x: lax.pad(x, 0.0, ((0, 0, 0), (-1, 0, 0))), [f32(8, 8)]),
    "rev": (lambda x: lax.rev(x, (1,)), [f32(8, 8)]),
    "concatenate": (lambda x, y: lax.concatenate([x, y], 1), [f32(8, 8), f32(8, 4)]),
    "dynamic_slice": (lambda x, i: lax.dynamic_slice(x, (i, 0), (4, 8)), [f32(8, 8), i32()]),
    "dynamic_update_slice": (
        lambda x, u, i: lax.dynamic_update_slice(x, u, (i, 0)),
        [f32(8, 8), f32(4, 8), i32()],
    ),
    "sort": (lambda x: lax.sort(x, dimension=1), [f32(8, 16)]),
    "sort of two": (
        lambda x, y: lax.sort((x, y), dimension=1, num_keys=1)[0],
        [f32(8, 16), f32(8, 16)],
    ),
    "reduce_window_max": (
        lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
        [f32(2, 8, 8, 4)],
    ),
    "reduce_window_sum": (
        lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), (1, 1, 1, 1), "SAME"),
        [f32(2, 8, 8, 4)],
    ),
    "convolution": (conv((1, 1), "SAME"), [f32(2, 8, 8, 4), f32(3, 3, 4, 16)]),
    "convolution, channels first": (
        conv((2, 2), "SAME", ("NCHW", "OIHW", "NCHW")),
        [f32(2, 4, 8, 8), f32(16, 4, 3, 3)],
    ),
    "convolution in groups": (
        conv((1, 1), "SAME", feature_group_count=2),
        [f32(2, 8, 8, 4), f32(3, 3, 2, 16)],
    ),
    "convolution in batches": (
        conv((1, 1), "SAME", batch_group_count=2),
        [f32(4, 8, 8, 4), f32(3, 3, 4, 16)],
    ),
    **{
        f"convolution {length} {kernel} {stride} {padding}": conv1(length, kernel, stride, padding)
        for length, kernel, stride, padding in (
            (8, 3, 1, "VALID"),
            (9, 3, 2, "SAME"),
            (8, 3, 3, "SAME"),
            (12, 3, 3, "VALID"),
            (9, 1, 4, "VALID"),
            (8, 8, 1, "VALID"),
            (10, 4, 2, "VALID"),
            (4, 5, 1, [(6, 6)]),
        )
    },
    "gather of rows": (lambda x, i: jnp.take(x, i, 0, mode="clip"), [f32(32, 8), i32(4, 6)]),
    "gather of columns": (lambda x, i: jnp.take(x, i, 1, mode="clip"), [f32(8, 32), i32(4)]),
    "gather along": (
        lambda x, i: jnp.take_along_axis(x, i, axis=1, mode="clip"),
        [f32(8, 32), i32(8, 1)],
    ),
    "scatter-add": (lambda x, i, u: x.at[i].add(u), [f32(32, 8), i32(4), f32(4, 8)]),
    "scatter": (lambda x, i, u: x.at[i].set(u), [f32(32, 8), i32(4, 6), f32(4, 6, 8)]),
    "scatter-add of elements": (
        lambda x, i, j, u: x.at[i, j].add(u),
        [f32(32, 8), i32(4), i32(4), f32(4)],
    ),
    "select by a scalar": (
        lambda p, x, y: lax.select_n(p > 0, x, y),
        [f32(), f32(8, 4), f32(8, 4)],
    ),
    "clamp": (lambda x: lax.clamp(0.0, x, 1.0), [f32(8, 4)]),
    "bitcast": (lambda x: lax.bitcast_convert_type(x, jnp.int16), [f32(8, 4)]),
    "squeeze": (lambda x: lax.squeeze(x, (1,)), [f32(3, 1, 4)]),
    "expand": (lambda x: x[:, None], [f32(5)]),
    "broadcast of one": (lambda x: jnp.broadcast_to(x, (4, 5)), [f32(1, 5)]),
    "transpose": (lambda x: x.transpose(2, 0, 1), [f32(2, 3, 4)]),
    "dot with a batch": (
        lambda x, y: lax.dot_general(x, y, (((2,), (1,)), ((0,), (0,)))),
        [f32(3, 8, 4), f32(3, 4, 5)],
    ),
    "reduce_and": (lambda x: lax.reduce_and(x > 0, (0,)), [f32(8, 4)]),
    "reduce_sum": (lambda x: x.sum((0, 2)), [f32(8, 4, 3)]),
    "cholesky": (lambda x: lax.linalg.cholesky(x, symmetrize_input=False), [f32(4, 2, 8, 8)]),
    "fft": (
        lambda x: lax.fft(x, lax.FftType.FFT, (8,)),
        [jax.ShapeDtypeStruct((4, 8), jnp.complex64)],
    ),
    **{
        f"reshape {source} to {target}": reshape(source, target)
        for source, target in (
            ((8, 12), (4, 4, 6)),
            ((4, 5), (5, 4)),
            ((3, 4), (1, 12, 1)),
            ((6, 4), (4, 6)),
            ((6, 4), (8, 3)),
            ((4, 5, 8), (5, 4, 4, 2)),
            ((2, 6, 10), (2, 4, 15)),
            ((8, 1, 3), (1, 24)),
            ((4, 4, 3, 5), (16, 5, 3)),
            ((4, 1, 3), (2, 1, 2, 3)),
        )
    },
    "select_and_scatter_add": (
        jax.grad(lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 1), (2, 1), "VALID").sum()),
        [f32(8, 4)],
    ),
    "split": (lambda x: lax.split(x, (2, 6), 1), [f32(4, 8)]),
    "optimization_barrier": (lambda x: lax.optimization_barrier(x), [f32(8, 4)]),
    "reduce_precision": (lambda x: lax.reduce_precision(x, 8, 7), [f32(8, 4)]),
    "stop_gradient": (lax.stop_gradient, [f32(8, 4)]),
    "complex": (lax.complex, [f32(8, 4), f32(8, 4)]),
    "top_k": (lambda x: lax.top_k(x, 2)[0], [f32(8, 16)]),
    "argmax": (lambda x: jnp.argmax(x, 1), [f32(8, 16)]),
    "sort of the first": (lambda x: lax.sort(x, dimension=0), [f32(8, 16)]),
    **{
        f"reduce_{name}": (lambda x, op=op: op(x, (1,)), [f32(8, 4)])
        for name, op in (("max", lax.reduce_max), ("min", lax.reduce_min))
    },
    "reduce_prod": (lambda x: x.prod(0), [f32(8, 4)]),
    "reduce_or": (lambda x: (x > 0).any(1), [f32(8, 4)]),
    "reduce_xor": (lambda x: lax.reduce_xor(x, (1,)), [i32(8, 4)]),
    "reduce_window_min": (
        lambda x: lax.reduce_window(x, jnp.inf, lax.min, (2, 1), (2, 1), "VALID"),
        [f32(8, 8)],
    ),
    **{
        op.__name__: (lambda x, op=op: op(x, 1), [f32(8, 16)])
        for op in (lax.cumsum, lax.cumprod, lax.cummax, lax.cummin, lax.cumlogsumexp)
    },
    **{
        op.__name__: (op, [i32(8, 4), i32(8, 4)])
        for op in (
            *(lax.bitwise_and, lax.bitwise_or, lax.bitwise_xor, lax.shift_left),
            *(lax.shift_right_arithmetic, lax.shift_right_logical),
        )
    },
    **{op.__name__: (op, [i32(8, 4)]) for op in (lax.bitwise_not, lax.clz, lax.population_count)},
    **{
        op.__name__: (op, [jax.ShapeDtypeStruct((8, 4), jnp.complex64)])
        for op in (lax.real, lax.imag, lax.conj)
    },
    **{
        op.__name__: (op, [f32(8, 4), f32(8, 4)])
        for op in (lax.ne, lax.ge, lax.gt, lax.le, lax.nextafter)
    },
    **{
        op.__name__: (op, [f32(8, 4)])
        for op in (
            *(lax.acos, lax.acosh, lax.asin, lax.asinh, lax.atan, lax.atanh, lax.cbrt, lax.ceil),
            *(lax.cosh, lax.digamma, lax.erf, lax.erfc, lax.erf_inv, lax.exp2, lax.lgamma),
            *(lax.log1p, lax.round, lax.sinh, lax.square, lax.tan, lax.bessel_i0e),
        )
    },
    "integer_pow": (lambda x: lax.integer_pow(x, 2), [f32(8, 4)]),
    **{
        name: (op, [f32(8, 4), f32(8, 4)])
        for name, op in (
            *(("add", lax.add), ("sub", lax.sub), ("mul", lax.mul), ("div", lax.div)),
            *(("max", lax.max), ("min", lax.min), ("pow", lax.pow), ("rem", lax.rem)),
            *(("eq", lax.eq), ("lt", lax.lt), ("atan2", lax.atan2)),
        )
    },
    **{
        name: (op, [f32(8, 4)])
        for name, op in (
            *(("exp", lax.exp), ("log", lax.log), ("sin", lax.sin), ("cos", lax.cos)),
            *(("tanh", lax.tanh), ("sqrt", lax.sqrt), ("rsqrt", lax.rsqrt), ("neg", lax.neg)),
            *(("sign", lax.sign), ("floor", lax.floor), ("is_finite", lax.is_finite)),
            *(("logistic", lax.logistic), ("abs", lax.abs), ("expm1", lax.expm1)),
            ("convert", lambda x: x.astype(jnp.bfloat16)),
        )
    },
}


def renumbered(rule: Rule) -> Rule:
    """The rule with factors counted in the order in which they stand in the tensors."""
    order: dict[int, int] = {}
    for factor in (f for dims in rule.tensors for dim in dims for f in dim):
        order.setdefault(factor, len(order))

    def tensors(given: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(tuple(tuple(order[f] for f in dim) for dim in dims) for dims in given)

    kinds = ("reduction", "need_replication", "permutation", "blocked")
    return Rule(
        tuple(rule.sizes[factor] for factor in order),
        tensors(rule.operands),
        tensors(rule.results),
        **{kind: tuple(sorted(order[f] for f in getattr(rule, kind))) for kind in kinds},
    )


def compared() -> dict[str, Any]:
    """For each case the rules that differ, and how many were compared."""
    return {name: _case(fn, tuple(avals)) for name, (fn, avals) in CASES.items()}


def _case(fn: Callable[..., Any], avals: tuple[Any, ...]) -> tuple[list[str], int]:
    rows = peer.Rows(peer.propagated(peer.module_of(fn, avals), RULES))
    with by_kind():
        program = partition(fn, *avals, mesh=Mesh({"d": 8})).given
    differences, count = [], 0
    for op in program.body.ops:
        theirs = _theirs(op, program.values, rows)
        ours = rule_of(op, program.values)
        if theirs is None or ours is None:
            continue
        count += 1
        if renumbered(ours) != renumbered(theirs):
            differences.append(f"{op.kind}: ours {format_rule(ours)}, {format_rule(theirs)}")
    return differences, count


def _theirs(op: Op, values: tuple[Value, ...], rows: Any) -> Rule | None:
    """The rule of the one op that this op lowers to; None if it is several, or has none."""
    listed = rows.by_scope.get(values[op.results[0]].name, [])
    wide = [row for row in listed if row["op"] != "stablehlo.broadcast_in_dim"] or listed
    if len(wide) != 1 or not wide[0]["rule"]:
        return None
    rule = parse_rule(wide[0]["rule"].partition("<")[2])
    return replace(rule, operands=rule.operands[: len(op.operands)])  # without initial values
