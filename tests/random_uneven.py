"""Random functions of values whose extents do not divide, with random constraints on them.

`case(seed, mesh)`: two sequences and two matrices, whose extents divide, and steps that make values
of other extents and read them: slices, windows, convolutions, sums, softmax, searches, products.
With `edges`, the arguments and results have such extents as well.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import random_functions
from jax import lax

import shardwright as sw

Shape = tuple[int, ...]


def _window(x: Any, at: Any, start: float, op: Any) -> Any:
    dim, size, stride, padding = at
    sizes, strides = [1] * x.ndim, [1] * x.ndim
    sizes[dim], strides[dim] = size, stride
    return lax.reduce_window(x, start, op, sizes, strides, padding)


def _convolve(x: Any, w: Any, at: Any) -> Any:
    size, stride, dilation, padding = at
    kernel = jnp.stack([w * (n + 1.0) / size for n in range(size)])
    names = ("NHC", "HIO", "NHC")
    return lax.conv_general_dilated(
        x, kernel, (stride,), padding, rhs_dilation=(dilation,), dimension_numbers=names
    )


def _label(x: Any, _: Any) -> Any:
    """The score of a label at each place."""
    labels = (jnp.arange(x[..., 0].size) * 7 % x.shape[-1]).reshape(x.shape[:-1])
    return jnp.take_along_axis(jax.nn.log_softmax(x), labels[..., None], -1)[..., 0]


def _cut(x: Any, at: tuple[int, int, int]) -> Any:
    dim, start, stop = at
    return lax.slice_in_dim(x, start, stop, axis=dim)


def _every(x: Any, at: tuple[int, int, int, int]) -> Any:
    dim, start, stop, stride = at
    return lax.slice_in_dim(x, start, stop, stride, axis=dim)


def _joined(x: Any, dim: int) -> Any:
    return jnp.concatenate([jnp.tanh(lax.slice_in_dim(x, 0, 1, axis=dim)), x], dim)


STEPS: dict[str, Any] = {
    "cut": _cut,
    "every": _every,
    "diff": lambda x, dim: jnp.diff(x, axis=dim),
    "max of windows": lambda x, at: _window(x, at, -jnp.inf, lax.max),
    "sum of windows": lambda x, at: _window(x, at, 0.0, lax.add) / at[1],
    "convolution": _convolve,
    "label": _label,
    "joined": _joined,
    "softmax": lambda x, dim: jax.nn.softmax(x, dim),
    "mean": lambda x, dim: x - x.mean(dim, keepdims=True),
    # XLA may compute a maximum's operand twice, not bitwise the same, and its gradient is then NaN
    "maximum": lambda x, dim: lax.stop_gradient(x).max(dim) * x.mean(dim),
    "least": lambda x, dim: lax.stop_gradient(x).min(dim) - x.mean(dim),
    "variance": lambda x, dim: ((x - x.mean(dim, keepdims=True)) ** 2).mean(dim),
    "best": lambda x, dim: jnp.argmax(x, dim).astype(jnp.float32) / x.shape[dim],
    "cumsum": lambda x, dim: jnp.cumsum(jnp.tanh(x), dim) / x.shape[dim],
    "turned": lambda x, dim: jnp.flip(x, dim),
    "sorted": lambda x, dim: jnp.sort(x, dim),
    "scores": lambda x, _: jnp.einsum("bsh,bth->bst", x, x) / x.shape[2],
    "dot": lambda x, w, _: x @ w / w.shape[0],
    "root": lambda x, _: jnp.sqrt(x * x + 0.5),
    "log": lambda x, _: jnp.log(jnp.abs(x) + 1.0),
    "product": lambda x, y, _: x * y,
    "constrain": sw.constrain,
}


def _scanned(x: Any, dim: int) -> Any:
    """A carry of this shape, and the means of every iteration."""

    def body(carry: Any, factor: Any) -> Any:
        made = jnp.tanh(carry * factor) - carry.mean(dim, keepdims=True)
        return made, (made.sum(dim), made)

    last, (sums, every) = lax.scan(body, x, jnp.linspace(0.5, 1.0, 3, dtype=x.dtype))
    return last + every.mean(0) + jnp.expand_dims(sums[1], dim) / x.shape[dim]


def _taken(x: Any, at: tuple[int, str]) -> Any:
    """Rows of which some are out of range, some of them in the padding."""
    dim, mode = at
    rows = jnp.arange(x.shape[dim]) * 3 % (x.shape[dim] + 3)
    found = jnp.take(x, rows, axis=dim, mode=mode, fill_value=0.5)
    index = (slice(None),) * dim
    return jnp.zeros_like(x).at[(*index, rows)].add(found, mode=mode)


FLOW: dict[str, Any] = {
    "scanned": _scanned,
    "branched": lambda x, dim: lax.cond(
        x[(0,) * x.ndim] > 0.1,
        *(lambda x: x - x.mean(dim, keepdims=True), lambda x: jax.nn.softmax(x, dim)),
        x,
    ),
    "computed again": lambda x, dim: jax.checkpoint(lambda x: jnp.sin(x) * x.mean(dim).mean())(x),
    "repeated": lambda x, dim: lax.fori_loop(
        0, 3, lambda n, y: jnp.cos(y + n) * y.mean(dim, keepdims=True), x
    ),
    "taken": _taken,
}
"""Steps with loops, branches and indices."""
random_functions._STEPS.update({f"uneven {name}": step for name, step in FLOW.items()})
random_functions._STEPS.update({f"uneven {name}": step for name, step in STEPS.items()})


def case(seed: int, mesh: sw.Mesh, steps: int = 9, edges: bool = False) -> random_functions.Case:
    """What a seed makes."""
    rng = random.Random(seed)
    long, other = rng.choice((24, 32)), 24
    if edges:
        long, other = rng.choice((21, 30, 31)), rng.choice((19, 23, 25))
    shapes: list[Shape] = [(4, long, 6), (other, 6), (6, 6), (6, 9)]
    made = random_functions.Case(shapes, len(shapes), meshes=(mesh,))
    _add(made, "constrain", (0,), _split(rng, mesh, shapes[0], 1), shapes[0])
    _add(made, "constrain", (1,), _split(rng, mesh, shapes[1], 0), shapes[1])
    while len(made.steps) < steps:
        values = range(4, len(shapes))
        x = rng.choice(values[-3:]) if rng.random() < 0.8 else rng.choice(values)
        found = _step(rng, made, x, [*STEPS, *(FLOW if edges else ())])
        if found is None:
            continue
        _add(made, *found)
        if rng.random() < 0.4:
            shape = shapes[-1]
            long = max(range(len(shape)), key=lambda dim: shape[dim])
            _add(made, "constrain", (len(shapes) - 1,), _split(rng, mesh, shape, long), shape)
    made.inputs, made.outputs = (None,) * 4, (None,) * len(made.results())
    if edges:
        results = [shapes[value] for value in made.results()]
        made.inputs = tuple(_edge(rng, mesh, shape) for shape in shapes[:4])
        made.outputs = tuple(_edge(rng, mesh, shape) for shape in results)
    return made


def _edge(rng: random.Random, mesh: sw.Mesh, shape: Shape) -> str | None:
    """The sharding of an argument or result, None in one of four."""
    if not shape or rng.random() < 0.25:
        return None
    return _split(
        rng, mesh, shape, rng.choice((shape.index(max(shape)), rng.randrange(len(shape))))
    )


def _add(made: random_functions.Case, kind: str, given: Shape, more: Any, shape: Shape) -> None:
    made.steps.append((f"uneven {kind}", given, more))
    made.shapes.append(shape)


def _split(rng: random.Random, mesh: sw.Mesh, shape: Shape, dim: int) -> str:
    """A sharding with one dimension split by some axes."""
    axes = [f'"{name}"' for name in mesh.names]
    rng.shuffle(axes)
    own = ", ".join(axes[: rng.randint(1, len(axes))])
    return "[" + ", ".join(f"{{{own}}}" if d == dim else "{?}" for d in range(len(shape))) + "]"


def _step(rng: random.Random, made: random_functions.Case, x: int, kinds: Sequence[str]) -> Any:
    """A random step on a value; None where it does not fit."""
    shapes, shape = made.shapes, made.shapes[x]
    if not shape:
        return None
    dim = rng.randrange(len(shape)) if rng.random() < 0.4 else shape.index(max(shape))
    extent = shape[dim]

    def of(n: int) -> Shape:
        return (*shape[:dim], n, *shape[dim + 1 :])

    gone = (*shape[:dim], *shape[dim + 1 :])
    match rng.choice([name for name in kinds if name != "constrain"]):
        case "cut" if extent > 4:
            start = rng.choice((0, 0, 1, 2))
            stop = extent - rng.choice((0, 1, 1, 3) if start else (1, 1, 3))
            return "cut", (x,), (dim, start, stop), of(stop - start)
        case "every" if extent > 8:
            start, stride = rng.randint(0, 4), rng.choice((2, 2, 3))
            stop = extent - rng.choice((0, 0, 1))
            return "every", (x,), (dim, start, stop, stride), of(-(-(stop - start) // stride))
        case "diff" if extent > 4:
            return "diff", (x,), dim, of(extent - 1)
        case ("max of windows" | "sum of windows") as kind if extent > 8:
            size, stride = rng.choice((2, 3, 5)), rng.choice((1, 1, 2))
            padding = rng.choice(("VALID", "VALID", "SAME"))
            count = -(-extent // stride) if padding == "SAME" else (extent - size) // stride + 1
            return kind, (x,), (dim, size, stride, padding), of(count)
        case "convolution" if len(shape) == 3 and shape[2] == 6 and shape[1] > 8:
            size, stride, dilation = rng.choice((2, 3)), rng.choice((1, 1, 2)), rng.choice((1, 2))
            padding, reach = rng.choice(("VALID", "SAME")), (size - 1) * dilation
            count = (shape[1] - 1 - reach * (padding == "VALID")) // stride + 1
            return "convolution", (x, 2), (size, stride, dilation, padding), (4, count, 6)
        case "label" if len(shape) > 1 and shape[-1] > 1:
            return "label", (x,), None, shape[:-1]
        case "joined":
            return "joined", (x,), dim, of(extent + 1)
        case ("softmax" | "mean" | "cumsum" | "turned" | "sorted") as kind:
            return kind, (x,), dim, shape
        case ("maximum" | "least" | "variance" | "best") as kind if len(shape) > 1:
            return kind, (x,), dim, gone
        case "scores" if len(shape) == 3:
            return "scores", (x,), None, (*shape[:2], shape[1])
        case "dot" if shape[-1] == 6 and len(shape) > 1:
            w = rng.choice((2, 3))
            return "dot", (x, w), None, (*shape[:-1], shapes[w][1])
        case kind if kind in FLOW:
            more = (dim, rng.choice(("clip", "fill"))) if kind == "taken" else dim
            return kind, (x,), more, shape
        case ("root" | "log") as kind:
            return kind, (x,), None, shape
        case "product":
            y = rng.choice([v for v, other in enumerate(shapes) if other == shape])
            return "product", (x, y), None, shape
    return None
