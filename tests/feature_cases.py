"""Sixty small functions as people write them, one a feature of programs, for the mesh d=4, t=2."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import io_callback, sparse
from jax.experimental.custom_partitioning import custom_partitioning
from jax.experimental.pallas import pallas_call
from jax.experimental.shard_alike import shard_alike as jax_alike
from jax.extend.core import Primitive
from jax.sharding import PartitionSpec as P

ROWS, COLUMNS, BATCH = '[{"d"}, {}]', '[{}, {"t"}]', '[{"d"}, {}, {}]'
MESH = (("d", 4), ("t", 2))


class Feature(NamedTuple):
    """A function, its arguments, their shardings; `refused`: what is said before anything is
    planned; `smooth`: gradients are compared too."""

    name: str
    fn: Callable[..., Any]
    avals: tuple[Any, ...]
    shardings: Any
    refused: str = ""
    smooth: bool = True


def of(*shape: int, dtype: str = "float32") -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


X, W, M, T = of(8, 16), of(16, 8), of(8, 4, 4), of(8, 12, 16)
FEATURES: list[Feature] = []


def feature(*avals: Any, given: Any = ROWS, refused: str = "", smooth: bool = True) -> Any:
    """Note a function by its name."""

    def noted(fn: Callable[..., Any]) -> Callable[..., Any]:
        FEATURES.append(Feature(fn.__name__, fn, avals, given, refused, smooth))
        return fn

    return noted


def definite(x: Any) -> Any:
    return x @ x.mT + 4 * jnp.eye(x.shape[-1])


# Linear algebra, transforms, sampling


@feature(M, given=BATCH)
def cholesky_of_a_batch(x: Any) -> Any:
    return jnp.linalg.cholesky(definite(x))


@feature(X)
def covariance_whitened(x: Any) -> Any:
    return lax.linalg.triangular_solve(
        jnp.linalg.cholesky(x.T @ x + jnp.eye(16)), x, left_side=False, transpose_a=True, lower=True
    )


@feature(of(8, 8), of(8, 16), given=(None, COLUMNS))
def triangular_columns(a: Any, b: Any) -> Any:
    return lax.linalg.triangular_solve(definite(a), b, left_side=True, lower=True)


@feature(M, given=BATCH)
def qr_named(x: Any) -> Any:
    q, r = jnp.linalg.qr(x)
    return jnp.abs(q) + jnp.abs(r)


@feature(M, given=BATCH, smooth=False)
def qr_result(x: Any) -> Any:
    return jax.tree.map(jnp.abs, jnp.linalg.qr(x))


@feature(M, M, given=BATCH)
def solve(a: Any, b: Any) -> Any:
    return jnp.linalg.solve(definite(a), b)


@feature(M, given=BATCH)
def log_determinant(x: Any) -> Any:
    return jnp.linalg.slogdet(definite(x))[1]


@feature(M, given=BATCH)
def eigenvalues(x: Any) -> Any:
    return jnp.linalg.eigvalsh(definite(x))


@feature(M, given=BATCH)
def nuclear_norm(x: Any) -> Any:
    return jnp.linalg.svd(x, compute_uv=False).sum(-1)


@feature(M, given=BATCH, smooth=False)
def schur(x: Any) -> Any:
    return lax.linalg.schur(x)


@feature(X)
def least_squares(x: Any) -> Any:
    return jnp.linalg.lstsq(x.T, x.T[:, 0])[0]


@feature(T, given=BATCH)
def spectral_mixing(x: Any) -> Any:
    return jnp.fft.fft2(x, axes=(-2, -1)).real


@feature(T, given=BATCH)
def convolution_by_fft(x: Any) -> Any:
    return jnp.fft.irfft(jnp.fft.rfft(x, axis=1) * jnp.fft.rfft(x[:, ::-1], axis=1), n=12, axis=1)


@feature(X, smooth=False)
def gamma_samples(x: Any) -> Any:
    return jax.random.gamma(jax.random.key(0), jnp.abs(x) + 1)


@feature(X, smooth=False)
def approximate_best(x: Any) -> Any:
    return lax.approx_max_k(x, 3)


@feature(X)
def reduce_of_ones_own(x: Any) -> Any:
    return lax.reduce(x, -jnp.inf, jnp.logaddexp, (1,))


@feature(X, smooth=False)
def reduce_of_pairs(x: Any) -> Any:
    def better(a: Any, b: Any) -> Any:
        first = a[0] >= b[0]
        return jnp.where(first, a[0], b[0]), jnp.where(first, a[1], b[1])

    return lax.reduce((x, x + 1), (-jnp.inf, 0.0), better, (0,))


@feature(of(24, 16), of(4, 16, 8), given=(None, '[{}, {}, {"t"}]'))
def experts_by_group(x: Any, w: Any) -> Any:
    return lax.ragged_dot(x, w, jnp.array([6, 2, 10, 6], jnp.int32))


# Callbacks and prints


def doubled(x: Any) -> Any:
    """Called on the host."""
    return np.asarray(x, np.float32) * 2


@feature(X, smooth=False)
def host_function(x: Any) -> Any:
    return jnp.tanh(jax.pure_callback(doubled, of(8, 16), x, vmap_method="expand_dims"))


@feature(X, refused="cannot be imported", smooth=False)
def host_closure(x: Any) -> Any:
    return jax.pure_callback(lambda a: a, of(8, 16), x)


@feature(X, refused="once on every device", smooth=False)
def host_effect(x: Any) -> Any:
    return io_callback(doubled, of(8, 16), x)


@feature(X)
def printing(x: Any) -> Any:
    jax.debug.print("mean {m}", m=x.mean())
    return jnp.sin(x)


# A part of one's own


def mapped(fn: Any, **sides: Any) -> Any:
    mesh = jax.make_mesh((4, 2), ("d", "t"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    return jax.shard_map(fn, mesh=mesh, **sides)


@feature(X)
def own_collectives(x: Any) -> Any:
    def inside(x: Any) -> Any:
        return x - lax.pmean(x.mean(0), "d")

    return mapped(inside, in_specs=P("d"), out_specs=P("d"))(x * 2) + 1


@feature(X)
def own_ring(x: Any) -> Any:
    def inside(x: Any) -> Any:
        return x + lax.ppermute(x, "d", [(i, (i + 1) % 4) for i in range(4)])

    return mapped(inside, in_specs=P("d"), out_specs=P("d"))(x)


scaled_p = Primitive("feature_scaled")
scaled_p.def_impl(lambda x, *, by: x * by)
scaled_p.def_abstract_eval(lambda x, *, by: x)


@feature(X, smooth=False)
def primitive_of_a_library(x: Any) -> Any:
    return scaled_p.bind(jnp.sin(x), by=3.0)


@feature(M, given=BATCH, smooth=False)
def lu_factors(x: Any) -> Any:
    return lax.linalg.lu(definite(x))


def double_kernel(x: Any, y: Any) -> None:
    y[...] = x[...] * 2


def doubled_by_a_kernel(x: Any) -> Any:
    return pallas_call(double_kernel, jax.ShapeDtypeStruct(x.shape, x.dtype), interpret=True)(x)


@feature(X, smooth=False)
def own_kernel(x: Any) -> Any:
    return doubled_by_a_kernel(x) + 1


@feature(X, smooth=False)
def own_kernel_on_shards(x: Any) -> Any:
    sides = {"in_specs": P("d"), "out_specs": P("d"), "check_vma": False}
    return mapped(doubled_by_a_kernel, **sides)(x * 2) + 1


def matmul_kernel(x: Any, w: Any, y: Any) -> None:
    y[...] = x[...] @ w[...]


def product_by_a_kernel(x: Any, w: Any) -> Any:
    shape = jax.ShapeDtypeStruct((x.shape[0], w.shape[1]), x.dtype)
    return pallas_call(matmul_kernel, shape, interpret=True)(x, w)


def shardings_of(tree: Any) -> Any:
    return jax.tree.map(lambda x: x.sharding, tree)


def partitioned(fn: Any, local: Any, rule: Any, **factors: Any) -> Any:
    """Let each device run `local` on its shards, with the shardings that the rule allows."""

    def partition(mesh: Any, args: Any, result: Any) -> Any:
        return mesh, local, shardings_of(result), shardings_of(args)

    made = custom_partitioning(fn)
    made.def_partition(partition, sharding_rule=rule, **factors)
    return made


@feature(X, W, given=(ROWS, COLUMNS), smooth=False)
def own_kernel_with_a_rule(x: Any, w: Any) -> Any:
    rule, reduced = "i k, k j -> i j", ("k",)
    product = partitioned(product_by_a_kernel, product_by_a_kernel, rule, reduction_factors=reduced)
    return jnp.tanh(product(x, w))


@feature(X, smooth=False)
def own_partitioning(x: Any) -> Any:
    f = custom_partitioning(lambda x: x * 2)
    f.def_partition(
        partition=lambda mesh, args, result: (mesh, lambda x: x * 2, result.sharding, None),
        infer_sharding_from_operands=lambda mesh, args, result: args[0].sharding,
        sharding_rule="i j -> i j",
    )
    return f(x)


@feature(X, X)
def alike(x: Any, y: Any) -> Any:
    import shardwright as sw

    x, y = sw.shard_alike(x, y)
    return jnp.exp(x) * y


@feature(X, X)
def alike_of_jax(x: Any, y: Any) -> Any:
    x, y = jax_alike(x, jnp.sin(y))
    return jnp.exp(x) * y


@feature(X, of(16, 4), given=(ROWS, None), smooth=False)
def sparse_matmul(x: Any, w: Any) -> Any:
    m = sparse.BCOO.fromdense(jnp.where(x > 0, x, 0), nse=128)
    return m @ w, sparse.BCSR.from_bcoo(m) @ w, m.todense(), m.T @ x


@feature(of(8, 4), given=None)
def sparse_argument(x: Any) -> Any:
    at = jnp.array([[0, 1], [2, 3], [5, 0]])
    return sparse.BCOO((x[:3, 0], at), shape=(8, 8)) @ x


@feature(
    *(of(2, 8, 64), of(2, 64, 16), of(2, 8, 2), of(2, 2, 16)),
    given=('[{}, {"d"}, {}]', '[{}, {}, {"t"}]', None, None),
    smooth=False,
)
def scaled_matmul(x: Any, w: Any, scale_x: Any, scale_w: Any) -> Any:
    x, w = (each.astype("float8_e4m3fn") for each in (x, w))
    scales = {"lhs_scale": abs(scale_x) + 1, "rhs_scale": abs(scale_w) + 1}
    numbers = (((2,), (1,)), ((0,), (0,)))
    return lax.scaled_dot(x, w, **scales, dimension_numbers=numbers)


# Trees


class Weights(NamedTuple):
    """A layer."""

    kernel: Any
    bias: Any = None


@jax.tree_util.register_dataclass
@dataclass
class Training:
    """A state with a function in it."""

    weights: list[Weights]
    moments: Any
    apply: Callable[..., Any] = field(metadata={"static": True})


def network(weights: list[Weights], x: Any) -> Any:
    for each in weights:
        x = jnp.tanh(x @ each.kernel)
    return x


STATE = Training([Weights(of(16, 16))] * 3, OrderedDict(b=of(16, 16), a=of()), network)


@feature(STATE, X, given=(None, ROWS))
def state_with_a_function(state: Training, x: Any) -> Any:
    loss, grads = jax.value_and_grad(lambda w: (state.apply(w, x) ** 2).mean())(state.weights)
    weights = jax.tree.map(lambda w, g: w - 0.1 * g, state.weights, grads)
    moments = OrderedDict(b=state.moments["b"] + grads[0].kernel, a=state.moments["a"] + loss)
    return Training(weights, moments, state.apply), {"loss": loss}


class Opaque:
    """A node without names."""

    def __init__(self, items: Any) -> None:
        self.items = items


jax.tree_util.register_pytree_node(
    Opaque, lambda node: (tuple(node.items), None), lambda _, items: Opaque(items)
)


@feature(Opaque((X, {"w": W})), given=None)
def opaque_nodes(pair: Opaque) -> Any:
    x, inner = pair.items
    return Opaque((x @ inner["w"], inner["w"] * 2))


@feature({0: X, 3: (W, None)}, given=None)
def keys_and_none(tree: Any) -> Any:
    return [tree[0] @ tree[3][0], None]


TABLE = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)


@feature(X)
def large_constant(x: Any) -> Any:
    return x @ TABLE


def scaled(x: Any, factor: float, *, kind: str) -> Any:
    return x * factor if kind == "times" else x


FEATURES.append(
    Feature("static_keywords", functools.partial(scaled, factor=3.0, kind="times"), (X,), ROWS)
)


# Control flow, derivatives


@feature(of(16, 16), of(6, 8, 16), given=(None, '[{}, {"d"}, {}]'))
def accumulated(w: Any, batches: Any) -> Any:
    def add(total: Any, x: Any) -> Any:
        return total + jnp.tanh(x @ w).T @ x, x.sum()

    return lax.scan(add, jnp.zeros_like(w), batches)


@feature(X, smooth=False)
def until_small(x: Any) -> Any:
    return lax.while_loop(lambda x: jnp.abs(x).max() > 0.1, lambda x: x / 2, x)


@feature(X)
def one_of_two(x: Any) -> Any:
    return lax.cond(x.sum() > 0, lambda x: x @ x.T, lambda x: -(x @ x.T), x)


@feature(X)
def associative(x: Any) -> Any:
    return lax.associative_scan(lambda a, b: a * 0.5 + b, x, axis=1)


@feature(X, W, given=(ROWS, COLUMNS))
def checkpointed(x: Any, w: Any) -> Any:
    policy = jax.checkpoint_policies.save_only_these_names("kept")
    block = jax.checkpoint(lambda x: jnp.sin(checkpoint_name(x @ w, "kept")), policy=policy)
    return block(x)


@jax.custom_vjp
def clipped(x: Any) -> Any:
    return x


clipped.defvjp(lambda x: (x, ()), lambda _, g: (jnp.clip(g, -0.5, 0.5),))


@feature(X)
def own_gradient(x: Any) -> Any:
    return clipped(x) ** 2


@feature(X)
def hessian_product(x: Any) -> Any:
    loss = lambda x: (jnp.tanh(x) ** 2).sum()  # noqa: E731
    return jax.jvp(jax.grad(loss), (x,), (x,))[1]


@feature(X)
def jacobian(x: Any) -> Any:
    return jax.vmap(jax.jacfwd(lambda v: jnp.sin(v[:4]) * v[4:8].sum()))(x)


@feature(T, given=BATCH)
def rows_by_vmap(x: Any) -> Any:
    return jax.vmap(lambda a: a @ a.T / jnp.linalg.norm(a))(x)


# Parts of models


@feature(X, of(16), given=(ROWS, None))
def scoped_norm(x: Any, scale: Any) -> Any:
    with jax.named_scope("norm"):
        return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * scale


@feature(T, given=BATCH)
def causal_attention(x: Any) -> Any:
    scores = jnp.einsum("bqd,bkd->bqk", x, x) / jnp.sqrt(16.0)
    scores = jnp.where(jnp.tril(jnp.ones((12, 12), bool)), scores, -jnp.inf)
    return jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(scores), x)


@feature(T, given=BATCH)
def library_attention(x: Any) -> Any:
    heads = x.reshape(8, 12, 4, 4)
    return jax.nn.dot_product_attention(heads, heads, heads, is_causal=True)


@feature(of(8, 12, 4), of(8, 1, 4), of(dtype="int32"), given=(BATCH, BATCH, None), smooth=False)
def cache_update(cache: Any, new: Any, at: Any) -> Any:
    cache = lax.dynamic_update_slice(cache, new, (0, at, 0))
    return cache, jnp.where(jnp.arange(12)[None, :, None] <= at, cache, 0).sum(1)


@feature(of(64, 16), of(8, 12, dtype="int32"), given=('[{"t"}, {}]', ROWS))
def embedding(table: Any, tokens: Any) -> Any:
    return jnp.take(table, tokens, axis=0, mode="clip").mean(1)


@feature(X, of(8, dtype="int32"), given=(ROWS, '[{"d"}]'))
def cross_entropy(logits: Any, labels: Any) -> Any:
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1)
    return -chosen.mean()


@feature(X, smooth=False)
def sampled_tokens(x: Any) -> Any:
    best, _ = lax.top_k(x, 4)
    kept = jnp.where(x < best[:, -1:], -jnp.inf, x)
    return jax.random.categorical(jax.random.key(1), kept)


@feature(X, smooth=False)
def dropout(x: Any) -> Any:
    return jnp.where(jax.random.bernoulli(jax.random.key(2), 0.8, x.shape), x / 0.8, 0)


@feature(of(8, 12, 12, 3), of(3, 3, 3, 8), given=('[{"d"}, {}, {}, {}]', None))
def image_convolution(x: Any, kernel: Any) -> Any:
    y = lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return lax.reduce_window(jax.nn.relu(y), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME")


@feature(of(32, 16), of(32, dtype="int32"), given=(ROWS, '[{"d"}]'))
def segments(x: Any, groups: Any) -> Any:
    return jax.ops.segment_sum(x, groups, 8)


@feature(X)
def best_two(x: Any) -> Any:
    return lax.top_k(x, 2)[0]


@feature(X, W, of(8, 4), given=(ROWS, COLUMNS, None))
def three_by_einsum(x: Any, w: Any, v: Any) -> Any:
    return jnp.einsum("bi,ij,jk->bk", x, w, v)


@feature(X, smooth=False)
def sorted_rows(x: Any) -> Any:
    return jnp.sort(x, axis=1), jnp.argsort(x, axis=0)


@feature(X)
def running_totals(x: Any) -> Any:
    return jnp.cumsum(x, axis=0) + lax.cummax(x, axis=1)


@feature(of(8, 16, dtype="bfloat16"), W, given=(ROWS, None), smooth=False)
def mixed_precision(x: Any, w: Any) -> Any:
    return jax.nn.silu((x @ w.astype(jnp.bfloat16)).astype(jnp.float32))


@feature(*(of(8, n, dtype=f"{each}") for each in ("float32", "bfloat16", "int32") for n in (3, 5)))
def sums_of_several_dtypes(*arrays: Any) -> Any:
    return [abs(each.sum(0)) for each in arrays]


@feature(of(8, 16, dtype="int8"), of(16, 8, dtype="int8"), given=(ROWS, None), smooth=False)
def quantized(x: Any, w: Any) -> Any:
    return (x.astype(jnp.int32) @ w.astype(jnp.int32)) // 3


@feature(of(8, 10), of(10, 6), given=(ROWS, None))
def uneven_inside(x: Any, w: Any) -> Any:
    return jax.nn.gelu(jnp.concatenate([x, x[:, :3]], 1)[:, 1:11] @ w)


@feature(X, refused="applies a function", smooth=False)
def scatter_apply(x: Any) -> Any:
    return x.at[2:4].apply(jnp.sin)


@feature(X, refused="jax.pmap", smooth=False)
def nested_pmap(x: Any) -> Any:
    return jax.pmap(lambda v: v * 2)(x[:1])


def of_other_shards(x: Any) -> Any:
    return partitioned(doubled_by_a_kernel, lambda x: x * 3, "i j -> i j")(x)


PLANTED = (Feature("of_other_shards", of_other_shards, (X,), ROWS),)
"""A function whose shards are computed otherwise than the whole: run if it is named."""


def gradients() -> Iterator[Feature]:
    """The gradients of what is smooth, of all float arguments."""
    for each in FEATURES:
        if each.smooth and not each.refused:
            yield each._replace(name=f"gradient of {each.name}", fn=_gradient(each.fn))


def _gradient(fn: Callable[..., Any]) -> Callable[..., Any]:
    def total(floats: Any, others: Any, tree: Any) -> Any:
        leaves = [b if a is None else a for a, b in zip(floats, others, strict=True)]
        made = fn(*jax.tree.unflatten(tree, leaves))
        return sum(x.sum() for x in jax.tree.leaves(made) if jnp.issubdtype(x.dtype, jnp.floating))

    def gradient(*args: Any) -> Any:
        leaves, tree = jax.tree.flatten(args)
        is_float = [jnp.issubdtype(x.dtype, jnp.floating) for x in leaves]
        floats = [x if own else None for x, own in zip(leaves, is_float, strict=True)]
        others = [None if own else x for x, own in zip(leaves, is_float, strict=True)]
        return jax.grad(total)(floats, others, tree)

    return gradient
