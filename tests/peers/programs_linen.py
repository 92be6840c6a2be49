"""Programs of flax: linen modules, TrainState, nnx."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from program_cases import Case, drawn, graded, key, library, loss_of, named, of, program, trained

ROWS, IMAGES, TOKENS = of(8, 16), of(8, 8, 8, 3), of(8, 12, 16)


def nn() -> Any:
    return library("flax.linen")


def models() -> dict[str, tuple[Any, Any]]:
    """A module and the type of what it takes."""
    n = nn()
    return {
        "dense": (n.Sequential([n.Dense(32), n.gelu, n.Dense(8)]), ROWS),
        "norms": (n.Sequential([n.LayerNorm(), n.Dense(16), n.RMSNorm(), n.GroupNorm(4)]), ROWS),
        "conv": (
            n.Sequential([n.Conv(8, (3, 3)), n.relu, lambda x: n.max_pool(x, (2, 2), (2, 2))]),
            IMAGES,
        ),
        "conv_strided": (n.Conv(8, (3, 3), strides=2, feature_group_count=1), IMAGES),
        "conv_dilated": (n.Conv(8, (3, 3), kernel_dilation=2), IMAGES),
        "conv_circular": (n.Conv(8, (3, 3), padding="CIRCULAR"), IMAGES),
        "conv_depthwise": (n.Conv(6, (3, 3), feature_group_count=3), IMAGES),
        "conv_transpose": (n.ConvTranspose(4, (2, 2), strides=(2, 2)), IMAGES),
        "conv_local": (n.ConvLocal(4, (3, 3)), IMAGES),
        "avg_pool": (
            n.Sequential([n.Conv(4, (1, 1)), lambda x: n.avg_pool(x, (2, 2), (2, 2))]),
            IMAGES,
        ),
        "attention": (n.SelfAttention(4), TOKENS),
        "lstm": (n.RNN(n.LSTMCell(16)), of(8, 6, 16)),
        "lstm_optimized": (n.RNN(n.OptimizedLSTMCell(16)), of(8, 6, 16)),
        "gru": (n.RNN(n.GRUCell(16)), of(8, 6, 16)),
        "bidirectional": (
            n.Bidirectional(n.RNN(n.GRUCell(8)), n.RNN(n.SimpleCell(8))),
            of(8, 6, 16),
        ),
        "conv_lstm": (n.RNN(n.ConvLSTMCell(4, (3, 3))), of(8, 3, 4, 4, 4)),
        "general": (n.DenseGeneral((4, 4)), TOKENS),
        "general_batched": (n.DenseGeneral(8, axis=-1, batch_dims=(0,)), TOKENS),
        "einsum": (n.Einsum((16, 4, 8), "btd,dhk->bthk"), TOKENS),
        "weight_norm": (n.WeightNorm(n.Dense(16)), ROWS),
        "instance_norm": (n.Sequential([n.Conv(4, (1, 1)), n.InstanceNorm()]), IMAGES),
        "bfloat16": (n.Sequential([n.Dense(32, dtype="bfloat16"), n.silu, n.Dense(8)]), ROWS),
        "remat": (n.Sequential([n.remat(n.Dense)(32), n.tanh, n.remat(n.Dense)(8)]), ROWS),
        "prelu": (n.Sequential([n.Dense(16), n.PReLU(), n.Dense(4), n.softmax]), ROWS),
    }


def filled(x: Any) -> Any:
    return drawn(*x.shape, dtype=str(x.dtype))


def of_model(name: str, optimizer: Any = None) -> Case:
    module, x = models()[name]
    made = trained(module.apply, module.init(key(), filled(x)), x, optimizer=optimizer)
    return replace(made, off=2e-2) if name == "bfloat16" else made


for each in (
    *("dense", "norms", "conv", "conv_strided", "conv_dilated", "conv_circular", "conv_depthwise"),
    *("conv_transpose", "conv_local", "avg_pool", "attention", "lstm", "lstm_optimized", "gru"),
    *("bidirectional", "conv_lstm", "general", "general_batched", "einsum", "weight_norm"),
    *("instance_norm", "bfloat16", "remat", "prelu"),
):
    named(f"linen_{each}", lambda name=each: of_model(name))


@program
def linen_batch_norm() -> Case:
    """The statistics are a result beside the gradients."""
    n = nn()
    model = n.Sequential([n.Dense(16), n.BatchNorm(use_running_average=False), n.relu, n.Dense(4)])
    variables = model.init(key(), filled(ROWS))

    def loss(params: Any, stats: Any, x: Any) -> Any:
        y, kept = model.apply({"params": params, **stats}, x, mutable=["batch_stats"])
        return (y**2).mean(), kept

    stats = {"batch_stats": variables["batch_stats"]}
    return Case(
        jax.value_and_grad(loss, has_aux=True), (variables["params"], stats, ROWS), weights=True
    )


@program
def linen_dropout() -> Case:
    n = nn()
    model = n.Sequential([n.Dense(32), n.Dropout(0.5, deterministic=False), n.Dense(4)])
    params = model.init({"params": key(), "dropout": key(1)}, filled(ROWS))
    apply = lambda p, k, x: model.apply(p, x, rngs={"dropout": k})  # noqa: E731
    return Case(jax.value_and_grad(loss_of(apply)), (params, key(2), ROWS), weights=True)


@program
def linen_spectral_norm() -> Case:
    n = nn()
    layer = n.SpectralNorm(n.Dense(16))
    variables = layer.init(key(), filled(ROWS), update_stats=False)

    def apply(variables: Any, x: Any) -> Any:
        return layer.apply(variables, x, update_stats=True, mutable=["batch_stats"])

    return Case(apply, (variables, ROWS), weights=True)


def blocks(vocabulary: int = 32, wide: int = 16, layers: int = 2, scan: bool = False) -> Any:
    """A language model: tied embedding, causal attention, layers one by one or in a scan."""
    n = nn()

    class Block(n.Module):  # type: ignore[name-defined, misc]
        @n.compact
        def __call__(self, x: Any, _: Any = None) -> Any:
            mask = n.make_causal_mask(x[..., 0])
            x = x + n.MultiHeadDotProductAttention(4)(n.LayerNorm()(x), mask=mask)
            y = n.Dense(4 * wide)(n.LayerNorm()(x))
            return x + n.Dense(wide)(n.gelu(y)), None

    class Model(n.Module):  # type: ignore[name-defined, misc]
        @n.compact
        def __call__(self, tokens: Any) -> Any:
            embed = n.Embed(vocabulary, wide)
            x = embed(tokens) + self.param("place", n.initializers.normal(), (12, wide))
            if scan:
                split = {"params": True}
                x, _ = n.scan(Block, {"params": 0}, split_rngs=split, length=layers)()(x, None)
            else:
                for _ in range(layers):
                    x, _ = Block()(x)
            return embed.attend(n.LayerNorm()(x))

    return Model()


def language_model(scan: bool, optimizer: Any = None) -> Case:
    optax = library("optax")
    tokens = drawn(8, 12, dtype="int32")
    model = blocks(scan=scan)
    params = model.init(key(), tokens)

    def apply(params: Any, tokens: Any) -> Any:
        logits = model.apply(params, tokens)[:, :-1]
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])

    return trained(apply, params, of(8, 12, dtype="int32"), optimizer=optimizer)


@program
def linen_language_model() -> Case:
    return language_model(scan=False, optimizer=library("optax").adamw(1e-3))


@program
def linen_language_model_scan() -> Case:
    return language_model(scan=True)


@program
def linen_decode() -> Case:
    """A step of decoding with the cache of attention."""
    n = nn()
    layer = n.MultiHeadDotProductAttention(4, decode=True)
    variables = layer.init(key(), drawn(8, 12, 16))
    one = of(8, 1, 16)
    cache = {"cache": variables["cache"]}

    def step(params: Any, cache: Any, x: Any) -> Any:
        return layer.apply({"params": params, **cache}, x, mutable=["cache"])

    return Case(step, (variables["params"], cache, one), weights=True)


@program
def linen_ensemble() -> Case:
    n = nn()
    model = n.vmap(
        n.Dense,
        variable_axes={"params": 0},
        split_rngs={"params": True},
        in_axes=None,
        axis_size=4,
    )(8)
    return trained(model.apply, model.init(key(), filled(ROWS)), ROWS)


@program
def linen_partitioned() -> Case:
    """Parameters in boxes that name their axes."""
    n = nn()
    initial = n.with_partitioning(n.initializers.lecun_normal(), (None, "t"))
    model = n.Sequential([n.Dense(32, kernel_init=initial), n.relu, n.Dense(8)])
    return trained(model.apply, model.init(key(), filled(ROWS)), ROWS)


@program
def flax_train_state() -> Case:
    module, x = models()["dense"]
    optax = library("optax")
    state = library("flax.training.train_state").TrainState.create(
        apply_fn=module.apply, params=module.init(key(), filled(x)), tx=optax.adamw(1e-3)
    )

    def step(state: Any, x: Any) -> Any:
        loss = lambda p: (state.apply_fn(p, x) ** 2).mean()  # noqa: E731
        value, gradients = jax.value_and_grad(loss)(state.params)
        return state.apply_gradients(grads=gradients), value

    return Case(step, (state, x), weights=True)


# nnx


def of_nnx(make: Any, x: Any) -> Case:
    """A step of descent by the state of a module."""
    nnx = library("flax.nnx")
    graph, params, rest = nnx.split(make(nnx, nnx.Rngs(0)), nnx.Param, ...)

    def step(params: Any, rest: Any, x: Any) -> Any:
        def loss(params: Any) -> Any:
            model = nnx.merge(graph, params, rest, copy=True)
            value = (model(x) ** 2).mean()
            return value, nnx.state(model, nnx.Not(nnx.Param))

        (value, kept), gradients = jax.value_and_grad(loss, has_aux=True)(params)
        return value, kept, jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients)

    return Case(step, (params, rest, x), weights=True)


def _nnx_list() -> dict[str, tuple[Any, Any]]:
    return {
        "mlp": (lambda n, r: n.Sequential(n.Linear(16, 32, rngs=r), n.Linear(32, 8, rngs=r)), ROWS),
        "conv": (
            lambda n, r: n.Sequential(n.Conv(3, 8, (3, 3), rngs=r), n.BatchNorm(8, rngs=r)),
            IMAGES,
        ),
        "dropout": (
            lambda n, r: n.Sequential(n.Linear(16, 32, rngs=r), n.Dropout(0.5, rngs=r)),
            ROWS,
        ),
        "attention": (lambda n, r: n.MultiHeadAttention(4, 16, decode=False, rngs=r), TOKENS),
        "gru": (lambda n, r: n.RNN(n.GRUCell(16, 8, rngs=r), rngs=r), of(8, 6, 16)),
        "lora": (lambda n, r: n.LoRA(16, 4, 8, rngs=r), ROWS),
        "norms": (
            lambda n, r: n.Sequential(
                n.LayerNorm(16, rngs=r), n.RMSNorm(16, rngs=r), n.GroupNorm(16, 4, rngs=r)
            ),
            ROWS,
        ),
        "einsum": (lambda n, r: n.Einsum("btd,dhk->bthk", (16, 4, 8), (4, 8), rngs=r), TOKENS),
    }


for each in ("mlp", "conv", "dropout", "attention", "gru", "lora", "norms", "einsum"):
    named(f"nnx_{each}", lambda name=each: of_nnx(*_nnx_list()[name]))


@program
def nnx_optimizer() -> Case:
    """The state of `nnx.Optimizer` goes in and out."""
    nnx, optax = library("flax.nnx"), library("optax")
    model = nnx.Linear(16, 8, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    graph, state = nnx.split((model, optimizer))

    def step(state: Any, x: Any) -> Any:
        model, optimizer = nnx.merge(graph, state)
        gradients = nnx.grad(lambda m: (m(x) ** 2).mean())(model)
        optimizer.update(model, gradients)
        return nnx.state((model, optimizer))

    return Case(step, (state, ROWS), weights=True)


@program
def nnx_layers() -> Case:
    """Layers made by `nnx.vmap` and run by `nnx.scan`."""
    nnx = library("flax.nnx")
    made = nnx.vmap(lambda k: nnx.Linear(16, 16, rngs=nnx.Rngs(k)), in_axes=0, out_axes=0)
    graph, state = nnx.split(made(jax.random.split(key(), 3)))

    def apply(state: Any, x: Any) -> Any:
        def layer(x: Any, state: Any) -> Any:
            return jnp.tanh(nnx.merge(graph, state)(x)), None

        return jax.lax.scan(layer, x, state)[0]

    return graded(apply, state, ROWS)
