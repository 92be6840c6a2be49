"""Every op that modules can have, in every arity: a small function of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import PartitionSpec as P

import shardwright as sw

Fn = Callable[..., Any]
F, I, B, C = (  # noqa: E741
    ("float64", "int64", "bool", "complex128")
    if jax.config.jax_enable_x64
    else ("float32", "int32", "bool", "complex64")
)
SQUARE = (8, 6)


class OpCase(NamedTuple):
    """A function whose jaxpr has ops of some kind, and the types of its arguments."""

    name: str
    fn: Fn
    avals: tuple[Any, ...]


def of(dtype: str, *shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape or SQUARE, dtype)


def case(name: str, fn: Fn, *dtypes: str) -> OpCase:
    return OpCase(name, fn, tuple(map(of, dtypes)))


def positive(x: Any) -> Any:
    """Numbers between 0.25 and about 2."""
    return jnp.minimum(x * x, 2.0) + 0.25


def inside(x: Any) -> Any:
    """Numbers between -1 and 1."""
    return x / (1.0 + jnp.abs(x))


ORDER = np.array([0, 1, 7, 6, 2, 3, 5, 4], np.int32)
ANY = "abs asinh atan ceil cos cosh erf erfc exp exp2 expm1 floor is_finite logistic neg round sign"
ANY += " sin sinh square tan tanh bessel_i0e bessel_i1e cbrt"
POSITIVE = "digamma lgamma log log1p rsqrt sqrt"
INSIDE = "acos asin atanh erf_inv"
BINARY = "add atan2 eq ge gt le lt max min mul ne nextafter sub div rem"
WHOLE = "bitwise_and bitwise_or bitwise_xor add sub mul max min rem"
WHOLE += " shift_left shift_right_arithmetic shift_right_logical"


def elementwise() -> Iterator[OpCase]:
    for name in ANY.split():
        yield case(name, getattr(lax, name), F)
    for names, among in ((POSITIVE, positive), (INSIDE, inside)):
        for name in names.split():
            yield case(name, lambda x, n=name, a=among: getattr(lax, n)(a(x)), F)
    yield case("acosh", lambda x: lax.acosh(1.0 + positive(x)), F)
    for name in BINARY.split():
        yield case(name, getattr(lax, name), F, F)
    for name in WHOLE.split():
        yield case(f"{name} of integers", getattr(lax, name), I, I)
    yield case("quotients of integers", lambda x, y: lax.div(x, y + 1), I, I)
    for name in ("clz", "population_count", "bitwise_not", "neg", "abs", "sign"):
        yield case(f"{name} of integers", getattr(lax, name), I)
    for name in ("eq_to", "le_to", "lt_to"):
        yield case(name, lambda x, y, n=name: getattr(lax, f"{n}_p").bind(x, y), F, F)
    for name in ("and", "or", "xor"):
        yield case(f"{name} of truths", getattr(lax, f"bitwise_{name}"), B, B)
    yield case("not of truths", lax.bitwise_not, B)
    yield case("pow", lambda x, y: lax.pow(positive(x), y), F, F)
    yield case("pow of integers", lambda x, y: lax.pow(positive(x), y), F, I)
    for power in (3, -2):
        yield case(f"integer_pow {power}", lambda x, n=power: lax.integer_pow(positive(x), n), F)
    yield case("stop_gradient", lax.stop_gradient, F)
    yield case("copy", jnp.copy, F)
    yield case("name", lambda x: checkpoint_name(x * 2, "kept"), F)
    yield case("add_any", jax.grad(lambda x: (jnp.sin(x) * jnp.cos(x) + x * x).sum()), F)
    yield case("reduce_precision", lambda x: lax.reduce_precision(x, 5, 3), F)
    for to in (I, "bfloat16", B, C):
        yield case(f"conversion to {to}", lambda x, d=to: x.astype(d), F)
    for to in (I, "uint16", "uint8"):
        yield case(f"bits as {to}", lambda x, d=to: lax.bitcast_convert_type(x, d), F)
    wider = lambda x: lax.bitcast_convert_type(x, "int32")  # noqa: E731
    yield OpCase("bits as a wider one", wider, (of("uint8", 8, 4),))


def of_several() -> Iterator[OpCase]:
    """Ops of three operands and more, or of any number."""
    yield case("igamma", lambda x, y: lax.igamma(positive(x), positive(y)), F, F)
    yield case("igammac", lambda x, y: lax.igammac(positive(x), positive(y)), F, F)
    yield case("zeta", lambda x, y: lax.zeta(1.5 + positive(x), positive(y)), F, F)
    yield case("polygamma", lambda x: lax.polygamma(jnp.ones_like(x), positive(x)), F)
    yield case("betainc", lambda x, y: lax.betainc(positive(x), positive(y), positive(x) / 3), F, F)
    yield case("clamp by numbers", lambda x: lax.clamp(-0.2, x, 0.3), F)
    yield case("clamp by arrays", lambda x, y: lax.clamp(-positive(y), x, positive(y)), F, F)
    yield case("select of two", lax.select, B, F, F)
    yield case("select of three", lambda i, *x: lax.select_n(i % 3, *x), I, F, F, F)
    yield case("select by one", lambda x, y: lax.select_n(x[0, 0] > 0, x, y), F, F)
    for count in (1, 2, 3):
        many = (F,) * count
        yield case(f"barrier of {count}", lambda *x: lax.optimization_barrier(x), *many)
        yield case(f"concatenation of {count}", lambda *x: lax.concatenate(x, 0), *many)
        yield case(f"concatenation of {count} whole", lambda *x: lax.concatenate(x, 1), *many)
        yield case(f"sort of {count}", lambda *x: lax.sort(x, dimension=1, num_keys=1), *many)
        yield case(f"stack of {count}", lambda *x: jnp.stack(x, 1), *many)
    yield case("barrier of other shapes", lambda x: lax.optimization_barrier((x, x[0], x[0, 0])), F)
    yield case("sort by two keys", lambda i, *x: lax.sort((i, *x), num_keys=2), I, F, F)
    yield case("sort along rows", lambda x: lax.sort(x, dimension=0), F)
    yield case("unstack", lambda x: tuple(jnp.unstack(x, axis=1)), F)
    for name in ("real", "imag", "conj", "abs", "neg", "exp"):
        yield case(f"{name} of complex", getattr(lax, name), C)
    yield case("complex", lax.complex, F, F)


def shaped() -> Iterator[OpCase]:
    """Ops that change shapes."""
    shapes = {
        "broadcast": lambda x: lax.broadcast_in_dim(x, (3, 8, 6), (1, 2)),
        "broadcast of a number": lambda x: lax.broadcast_in_dim(x[0, 0], (4, 2), ()),
        "broadcast of one row": lambda x: lax.broadcast_in_dim(x[:1], (4, 6), (0, 1)),
        "reshape": lambda x: x.reshape(4, 12),
        "reshape, nothing in common": lambda x: x[:2, :3].reshape(3, 2),
        "reshape to one dimension": lambda x: x.reshape(48),
        "reshape of turned ones": lambda x: lax.reshape(x, (48,), (1, 0)),
        "squeeze": lambda x: lax.squeeze(x[:, None], (1,)),
        "transpose": lambda x: x.T,
        "transpose of three": lambda x: lax.transpose(x.reshape(4, 2, 6), (2, 0, 1)),
        "rev": lambda x: lax.rev(x, (0, 1)),
        "tile": lambda x: lax.tile(x, (2, 3)),
        "slice": lambda x: lax.slice(x, (1, 2), (7, 5)),
        "slice with strides": lambda x: lax.slice(x, (1, 0), (8, 6), (2, 3)),
        "split": lambda x: tuple(lax.split(x, (2, 6), axis=0)),
        "split of one": lambda x: tuple(lax.split(x, (6,), axis=1)),
        "pad": lambda x: lax.pad(x, 0.5, ((1, 2, 0), (0, 1, 2))),
        "pad that cuts": lambda x: lax.pad(x, 0.5, ((-1, -1, 0), (0, 0, 0))),
        "shift": lambda x: jnp.roll(x, 1, 0),
        "take_rows": lambda x: sw.constrain(x[ORDER], '[{"d"}, {}]'),
        "iota": lambda x: x + lax.broadcasted_iota(F, (8, 6), 0),
        "a row of iota": lambda x: x[:, 0] + lax.iota(F, 8),
    }
    for name, fn in shapes.items():
        yield case(name, fn, F)
    yield OpCase(
        *("dynamic_slice", lambda x, i: lax.dynamic_slice(x, (i, i), (2, 6))),
        (of(F), jax.ShapeDtypeStruct((), I)),
    )
    yield OpCase(
        *("dynamic_update_slice", lambda x, i: lax.dynamic_update_slice(x, x[:2] + 1, (i, 0))),
        (of(F), jax.ShapeDtypeStruct((), I)),
    )


def pairs(size: int) -> list[tuple[int, int]]:
    return [(n, size // n) for n in range(1, size + 1) if size % n == 0]


def reshaped() -> Iterator[OpCase]:
    """Of two dimensions to two others."""
    for size in (12, 36):
        for source in pairs(size):
            for target in pairs(size):
                if source[0] % 2 == 0:
                    fn = lambda x, to=target: x.reshape(to) * 2  # noqa: E731
                    yield OpCase(f"reshape of {source} to {target}", fn, (of(F, *source),))


def reduced() -> Iterator[OpCase]:
    for name in ("sum", "max", "min", "prod"):
        for dtype in (F, I):
            for axes in ((0,), (1,), (0, 1)):
                fn = getattr(lax, f"reduce_{name}")
                label = f"{name} of {dtype} along {axes}"
                yield case(label, lambda x, f=fn, a=axes: f(x, axes=a), dtype)
    for name, dtype in (("and", B), ("or", B), ("xor", B), ("and", I), ("or", I), ("xor", I)):
        for axes in ((0,), (1,)):
            fn = getattr(lax, f"reduce_{name}")
            label = f"{name} of {dtype} along {axes}"
            yield case(label, lambda x, f=fn, a=axes: f(x, axes=a), dtype)
    for name in ("argmax", "argmin"):
        for axis in (0, 1):
            fn = getattr(lax, name)
            yield case(f"{name} along {axis}", lambda x, f=fn, a=axis: f(x, a, I), F)
    for name in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"):
        for axis in (0, 1):
            for reverse in (False, True):
                fn = getattr(lax, name)
                label = f"{name} along {axis}{', in reverse' if reverse else ''}"
                yield case(label, lambda x, f=fn, a=axis, r=reverse: f(x, axis=a, reverse=r), F)
    for axis in (0, 1):
        yield case(f"top_k along {axis}", lambda x, a=axis: lax.top_k(x, 2, axis=a), F)
    window = ((2, 2), (2, 1), "SAME")
    for name, start, choose in (
        *(("sum", 0.0, lax.add), ("max", -jnp.inf, lax.max), ("min", jnp.inf, lax.min)),
    ):
        fn = lambda x, s=start, c=choose: lax.reduce_window(x, s, c, *window)  # noqa: E731
        yield case(f"windows, {name}", fn, F)
        if name != "sum":
            gradient = jax.grad(lambda x, f=fn: (f(x) ** 2).sum())
            yield case(f"windows, gradient of {name}", gradient, F)


def empty() -> Iterator[OpCase]:
    """Tensors without elements, split or not."""
    cases = {
        "maximum of nothing": lambda x: jnp.max(x, axis=1, initial=2.0),
        "minimum of nothing": lambda x: jnp.min(x, axis=(0, 1), initial=2.0),
        "sum of nothing": lambda x: x.sum(1),
        "maximum along what is split": lambda x: jnp.max(x, axis=0, initial=2.0),
        "top_k of nothing": lambda x: lax.top_k(x.T, 3),
        "nothing of a top_k": lambda x: lax.top_k(x, 0),
        "nothing beside nothing": lambda x: lax.concatenate((x, x), 0).sum(1),
    }
    for name, fn in cases.items():
        yield OpCase(name, fn, (of(F, 8, 0),))
    yield case("no rows of a top_k", lambda x: lax.top_k(x, 0, axis=0), F)


def branched() -> Iterator[OpCase]:
    """Branches of which one reduces otherwise than the other."""
    ways = {"sum": jnp.sum, "max": jnp.max, "min": jnp.min, "first": lambda x, axis: x[0]}
    for one, other in (("max", "sum"), ("sum", "min"), ("first", "max"), ("max", "min")):
        taken = [lambda x, f=ways[name]: f(x, axis=0) for name in (one, other)]
        fn = lambda x, p=taken: lax.cond(x[0, 0] > 0, *p, x)  # noqa: E731
        yield case(f"branches of {one} and {other}", fn, F)
        yield case(f"branches of {one} and {other}, the other", lambda x, f=fn: f(-x), F)


def contracted() -> Iterator[OpCase]:
    for name, fn in {
        "matmul": lambda x, y: x @ y.T,
        "matmul of vectors": lambda x, y: x[0] @ y[0],
        "einsum of a batch": lambda x, y: jnp.einsum("ab,ab->a", x, y),
        "outer product": lambda x, y: jnp.einsum("ab,cd->acbd", x, y),
    }.items():
        yield case(name, fn, F, F)
    yield case(
        "matmul of two dtypes",
        lambda x, y: lax.dot(x, y.T, preferred_element_type=F),
        "bfloat16",
        F,
    )
    yield OpCase(
        "scaled matmul",
        lambda x, w, a, b: lax.scaled_dot(x, w, lhs_scale=a, rhs_scale=b),
        (of(F, 8, 64), of(F, 64, 6), of(F, 8, 2), of(F, 2, 6)),
    )
    for name, more in (("", {}), (" in groups", {"feature_group_count": 2})):
        yield OpCase(
            f"convolution{name}",
            lambda x, w, m=more: lax.conv_general_dilated(x, w, (1, 1), "SAME", **m),
            (of(F, 4, 4, 8, 6), of(F, 6, 4 // (2 if more else 1), 3, 3)),
        )
    every = lax.ConvDimensionNumbers(range(4), range(4), range(4))
    yield OpCase(
        "convolution with ranges as numbers",
        lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=every),
        (of(F, 4, 4, 8, 6), of(F, 6, 4, 3, 3)),
    )
    index = jnp.array([3, 9, 0])
    for mode in ("clip", "fill", "promise_in_bounds"):
        at = index % 8 if mode == "promise_in_bounds" else index
        yield case(f"gather, {mode}", lambda x, i=at, m=mode: jnp.asarray(x).at[i].get(mode=m), F)
    for how in ("set", "add", "subtract", "multiply", "max", "min"):
        fn = lambda x, h=how: getattr(jnp.asarray(x).at[index], h)(x[:3] + 2.0)  # noqa: E731
        yield case(f"scatter, {how}", fn, F)
    yield case("gather of a batch", lambda x, i: jnp.take_along_axis(x, i, 1), F, I)


def mapped(fn: Fn, out: P, checked: bool = True) -> Fn:
    mesh = jax.make_mesh((2,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    return jax.shard_map(fn, mesh=mesh, in_specs=P("d"), out_specs=out, check_vma=checked)


def _swapped(x: Any) -> Any:
    """Two rows to the first device, one to the second; the other rows stay."""
    first = lax.axis_index("d") == 0
    sizes, at = jnp.array([2, 1], I), jnp.array([0, 2], I)
    into = jnp.where(first, jnp.array([0, 0], I), jnp.array([2, 1], I))
    arrive = jnp.where(first, jnp.array([2, 2], I), jnp.array([1, 1], I))
    return lax.ragged_all_to_all(x, x * 2, at, sizes, into, arrive, axis_name="d")


def collective() -> Iterator[OpCase]:
    """In a `shard_map`, and along an axis of `vmap`."""
    every = {
        "psum": (lambda x: lax.psum(x, "d"), P()),
        "psum of two": (lambda x: lax.psum((x, x[:1]), "d"), P()),
        "pmean": (lambda x: lax.pmean(x, "d"), P()),
        "pmax": (lambda x: lax.pmax(x, "d"), P()),
        "pmin": (lambda x: lax.pmin(x, "d"), P()),
        "ppermute": (lambda x: lax.ppermute(x, "d", [(0, 1), (1, 0)]), P("d")),
        "all_gather": (lambda x: lax.all_gather(x, "d", tiled=True), P("d")),
        "all_gather in a new dimension": (lambda x: lax.all_gather(x, "d"), P("d")),
        "all_gather to all": (lambda x: lax.all_gather(x, "d", tiled=True, to="invarying"), P()),
        "psum_scatter": (lambda x: lax.psum_scatter(x, "d", tiled=True), P("d")),
        "all_to_all": (lambda x: lax.all_to_all(x, "d", 1, 0, tiled=True), P("d")),
        "axis_index": (lambda x: x + lax.axis_index("d"), P("d")),
        "ragged_all_to_all": (_swapped, P("d")),
    }
    for name, (fn, out) in every.items():
        yield case(name, mapped(fn, out), F)
    for name in ("psum", "pmean", "pmax", "pmin"):
        fn = getattr(lax, name)
        along = jax.vmap(lambda x, f=fn: (x - f(x, "b"), f((x, x[0]), "b")), axis_name="b")
        yield case(f"{name} along an axis of vmap", along, F)
    both = jax.vmap(lambda x: lax.pmean(x, ("b", "d")), axis_name="b")
    yield case("pmean in a shard_map in a vmap", mapped(both, P(), checked=False), F)
    yield case("psum, not checked", mapped(lambda x: lax.psum((x, x[:1]), "d"), P(), False), F)


def of_keys(fn: Fn) -> Fn:
    return lambda x: fn(jax.random.wrap_key_data(jnp.abs(x[:, :2]).astype("uint32")))


def random() -> Iterator[OpCase]:
    of_one = lambda x: jax.random.split(jax.random.key(x[0, 0]), 3)  # noqa: E731
    yield case("keys of one", lambda x: jax.random.key_data(of_one(x)), I)
    yield case("seeds", lambda x: jax.random.key_data(jax.vmap(jax.random.key)(x[:, 0])), I)
    fold = jax.vmap(lambda key: jax.random.fold_in(key, 3))
    yield case("fold_in", of_keys(lambda keys: jax.random.key_data(fold(keys))), I)
    for dtype in ("uint32", "uint8"):
        drawn = lambda key, d=dtype: jax.random.bits(key, (2, 3), d)  # noqa: E731
        yield case(f"bits of keys in {dtype}", of_keys(jax.vmap(drawn)), I)
        yield case(f"bits of a key in {dtype}", of_keys(lambda k, f=drawn: f(k[0])), I)


def on_the_host(x: Any) -> Any:
    """What a module imports."""
    return np.asarray(x) + np.asarray(x)


def definite(x: Any) -> Any:
    """Matrices of which each is its transpose and has eigenvalues that are no less than 4."""
    return x @ x.mT + 4.0 * jnp.eye(x.shape[-1])


MATRICES: dict[str, Fn] = {
    "cholesky": lambda x: jnp.linalg.cholesky(definite(x)),
    "gradient of cholesky": jax.grad(lambda x: jnp.linalg.cholesky(definite(x)).sum()),
    "cholesky_update": lambda x: lax.linalg.cholesky_update(
        jnp.linalg.cholesky(definite(x[0, 0:4])).mT, x[0, 0]
    ),
    "symmetric_product": lambda x: lax.linalg.symmetric_product(
        x, definite(x), alpha=2.0, beta=3.0, symmetrize_output=True
    ),
    "qr": jnp.linalg.qr,
    "qr with pivots": lambda x: lax.linalg.qr(x, pivoting=True, full_matrices=False),
    "geqrf": lambda x: tuple(jnp.linalg.qr(x, mode="raw")),
    "householder_product": lambda x: lax.linalg.householder_product(x, x[..., 0]),
    "ormqr": lambda x: lax.linalg.ormqr(
        jnp.linalg.qr(x, mode="raw")[0].mT, jnp.linalg.qr(x, mode="raw")[1], x, transpose=True
    ),
    "lu": lambda x: lax.linalg.lu(x)[0],
    "order of pivots": lambda x: lax.linalg.lu_pivots_to_permutation(lax.linalg.lu(x)[1], 4),
    "eig": lambda x: jnp.abs(lax.linalg.eig(definite(x), compute_left_eigenvectors=False)[0]),
    "eigenvalues": lambda x: jnp.linalg.eigvals(definite(x)),
    "eigh": lambda x: jnp.linalg.eigh(definite(x))[0],
    "gradient of eigh": jax.grad(lambda x: jnp.linalg.eigh(definite(x))[0][..., 0].sum()),
    "svd": lambda x: jnp.linalg.svd(x, full_matrices=False),
    "singular values": lambda x: jnp.linalg.svd(x, compute_uv=False),
    "hessenberg": lax.linalg.hessenberg,
    "schur": lax.linalg.schur,
    "tridiagonal": lambda x: lax.linalg.tridiagonal(definite(x)),
    "tridiagonal_solve": lambda x: lax.linalg.tridiagonal_solve(
        x[..., 0, :], 9 + x[..., 1, :], x[..., 2, :], x
    ),
    "solve": lambda x: jnp.linalg.solve(definite(x), x),
    "gradient of solve": jax.grad(lambda x: jnp.linalg.solve(definite(x), x).sum()),
    "solve with columns that are split": lambda x: lax.linalg.triangular_solve(
        definite(x[0]), x.reshape(8, 2, 4).transpose(1, 2, 0)[0], left_side=True, lower=True
    ),
    "solve from the right": lambda x: lax.linalg.triangular_solve(
        definite(x[0]), x.reshape(-1, 4), left_side=False, transpose_a=True
    ),
    "inverse and determinant": lambda x: (jnp.linalg.inv(definite(x)), jnp.linalg.det(x)),
    "one matrix, split": lambda x: jnp.linalg.cholesky(definite(x[:, 0])),
    "fft": jnp.fft.fft,
    "fft along what is split": lambda x: jnp.fft.fft(x, axis=0),
    "fft of real numbers": lambda x: jnp.fft.irfft2(jnp.fft.rfft2(x)),
    "gradient of fft": jax.grad(lambda x: jnp.abs(jnp.fft.rfft(x)).sum()),
    "approximately largest": lambda x: lax.approx_max_k(x, 2),
    "approximately least, along what is split": lambda x: lax.approx_min_k(
        x, 2, reduction_dimension=0, aggregate_to_topk=False
    ),
    "gamma": lambda x: jax.random.gamma(jax.random.key(1), positive(x)),
    "gamma of each key": lambda x: jax.vmap(jax.random.gamma)(
        jax.random.split(jax.random.key(1), 4), positive(x)
    ),
    "callback": lambda x: jax.pure_callback(on_the_host, jax.typeof(x), x),
    "loggamma": lambda x: jax.random.loggamma(jax.random.key(1), positive(x)),
}


def of_matrices() -> Iterator[OpCase]:
    for name, fn in MATRICES.items():
        yield OpCase(name, fn, (of(F, 4, 4, 4),))


def ragged() -> Iterator[OpCase]:
    """Matmuls of groups of rows, along each dimension that may be split."""
    sizes = jnp.array([3, 0, 4])
    matrix = lambda x, w: lax.ragged_dot(x, w, sizes)  # noqa: E731
    ways: dict[str, Fn] = {
        "rows split": lambda x, w: matrix(x, w[:3]),
        "columns split": lambda x, w: matrix(x, w.transpose(1, 2, 0).reshape(3, 6, 8)),
        "sum split": lambda x, w: matrix(x.reshape(6, 8), w.transpose(1, 0, 2)),
        "its gradient": jax.grad(lambda x, w: (matrix(x, w[:3]) ** 2).sum(), (0, 1)),
        "in bfloat16": lambda x, w: lax.ragged_dot(
            *(v.astype("bfloat16") for v in (x, w[:3])), sizes, preferred_element_type=F
        ),
    }
    shapes = {"columns split": (8, 3, 6), "sum split": (8, 3, 5)}
    for name, fn in ways.items():
        yield OpCase(f"ragged dot, {name}", fn, (of(F, 8, 6), of(F, *shapes.get(name, (4, 6, 4)))))
    yield OpCase(
        "ragged dot, no groups",
        lambda x, w: lax.ragged_dot(x, w[:0], sizes[:0]),
        (of(F, 8, 6), of(F, 4, 6, 4)),
    )
    yield OpCase(
        "ragged dot, sizes as they come",
        lambda x, w, s: lax.ragged_dot(x, w[:3], s[:3] % 3),
        (of(F, 8, 6), of(F, 4, 6, 4), of("uint8", 4)),
    )


SUBJECTS = (elementwise, of_several, shaped, reshaped, reduced, empty, branched)
SUBJECTS += (contracted, collective, random, of_matrices, ragged)


def cases(uneven: bool = False) -> Iterator[OpCase]:
    """Yield every case; those of `shard_map`, whose shards are equal, not where 8 rows are not."""
    for each in SUBJECTS:
        if not (uneven and each is collective):
            yield from each()
