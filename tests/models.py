"""Models and ways to shard them: an MLP and a transformer layer, forward and a training step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec

B, S, D, H, F = 32, 128, 512, 8, 2048
MESHES = {
    "dp": {"d": 8},
    "fsdp": {"d": 8},
    "tp": {"t": 8},
    "fsdp+tp": {"d": 4, "t": 2},
    "tp+sp": {"t": 8},
    "dp+tp+sp": {"d": 2, "t": 4},
    "tp+sp+g": {"t": 8},
    "dp+tp+sp+g": {"d": 2, "t": 4},
}
MODELS = ("mlp", "mlp_step", "attention", "layer", "layer_step")
TENSOR_PARALLEL = {
    **dict.fromkeys(("wq", "wk", "wv"), (None, "t", None)),
    "wo": ("t", None, None),
    "w1": (None, "t"),
    "b1": ("t",),
    "w2": ("t", None),
}
VECTORS = ("b1", "b2", "g1", "g2", "c1", "c2")
Mark = Callable[[str, Any], Any]


def shaped(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def jax_mesh(**axes: int) -> Any:
    kinds = (AxisType.Auto,) * len(axes)
    return jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=kinds)


def unmarked(name: str, x: Any) -> Any:
    return x


def mlp(p: Any, x: Any) -> Any:
    return jax.nn.relu(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]


def norm(x: Any, gain: Any, shift: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * gain + shift


def attention(p: Any, x: Any) -> Any:
    q, k, v = (jnp.einsum("bsd,dhk->bshk", x, p[name]) for name in ("wq", "wk", "wv"))
    scores = jnp.einsum("bshk,bthk->bhst", q, k) / q.shape[-1] ** 0.5
    causal = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))
    weights = jax.nn.softmax(jnp.where(causal, scores, -1e30), axis=-1)
    return jnp.einsum("bshk,hkd->bsd", jnp.einsum("bhst,bthk->bshk", weights, v), p["wo"])


def layer(p: Any, x: Any, mark: Mark = unmarked) -> Any:
    h = mark("full", mark("normed", norm(x, p["g1"], p["c1"])))
    x = mark("residual", x + mark("residual", attention(p, h)))
    h = mark("full", mark("normed", norm(x, p["g2"], p["c2"])))
    h = jax.nn.gelu(h @ p["w1"] + p["b1"])
    return mark("residual", x + mark("residual", h @ p["w2"] + p["b2"]))


def mlp_parameters() -> dict[str, Any]:
    return {"w1": shaped(D, F), "b1": shaped(F), "w2": shaped(F, D), "b2": shaped(D)}


def layer_parameters() -> dict[str, Any]:
    heads = {name: shaped(D, H, D // H) for name in ("wq", "wk", "wv")}
    gains = {name: shaped(D) for name in ("g1", "c1", "g2", "c2")}
    return {**mlp_parameters(), **heads, **gains, "wo": shaped(H, D // H, D)}


def step_of(model: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """A step of gradient descent on the squared error."""

    def step(p: Any, x: Any, y: Any) -> Any:
        error, gradient = jax.value_and_grad(lambda p: jnp.mean((model(p, x) - y) ** 2))(p)
        return error, jax.tree.map(lambda a, b: a - 0.01 * b, p, gradient)

    return step


def parameter_spec(ways: list[str], name: str, rank: int) -> PartitionSpec:
    entries = list(TENSOR_PARALLEL.get(name, (None,) * rank)) if "tp" in ways else [None] * rank
    free = [dim for dim, entry in enumerate(entries) if entry is None]
    if "fsdp" in ways and free and (rank > 1 or name in VECTORS):
        entries[free[0]] = "d"
    return PartitionSpec(*entries)


def case(model: str, strategy: str) -> tuple[Any, tuple[Any, ...], Any, Any, Any]:
    """A function, its avals, the shardings of its arguments and results, and the mesh."""
    ways, mesh = strategy.split("+"), jax_mesh(**MESHES[strategy])

    def placed(*entries: Any) -> NamedSharding:
        return NamedSharding(mesh, PartitionSpec(*entries))

    data = "d" if "d" in mesh.axis_names else None
    small = model.startswith("mlp")
    parameters = mlp_parameters() if small else layer_parameters()
    x = shaped(B * S, D) if small else shaped(B, S, D)
    shardings = {
        name: NamedSharding(mesh, parameter_spec(ways, name, len(p.shape)))
        for name, p in parameters.items()
    }
    entry = placed(data)
    mark = unmarked
    if "sp" in ways:
        entry = placed((data, "t") if data else "t") if small else placed(data, "t")

        def mark(name: str, x: Any) -> Any:
            if name == "full":
                return jax.lax.with_sharding_constraint(x, placed(data)) if "g" in ways else x
            return jax.lax.with_sharding_constraint(x, placed(data, "t", None))

    models: dict[str, Callable[[Any, Any], Any]] = {
        "mlp": mlp,
        "attention": attention,
        "layer": lambda p, x: layer(p, x, unmarked if small else mark),
    }
    fn = models[model.removesuffix("_step")]
    if model.endswith("_step"):
        both = (shardings, entry, entry)
        return step_of(fn), (parameters, x, x), both, (placed(), shardings), mesh
    return fn, (parameters, x), (shardings, entry), entry, mesh
