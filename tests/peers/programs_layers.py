"""Programs of equinox, haiku, penzai, e3nn, jraph, dm_pix, chex."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from program_cases import Case, drawn, graded, key, library, loss_of, named, of, program, trained

ROWS, IMAGES, TOKENS = of(8, 16), of(8, 8, 8, 3), of(8, 12, 16)


# equinox


def equinox(make: Any, x: Any) -> Case:
    eqx = library("equinox")
    arrays, static = eqx.partition(make(eqx), eqx.is_array)

    def step(arrays: Any, x: Any) -> Any:
        loss = loss_of(lambda a, x: jax.vmap(eqx.combine(a, static))(x))
        value, gradient = jax.value_and_grad(loss)(arrays, x)
        return value, jax.tree.map(lambda a, g: a - 0.1 * g, arrays, gradient)

    return Case(step, (arrays, x), weights=True)


def _equinox_list() -> dict[str, tuple[Any, Any]]:
    def attention(eqx: Any) -> Any:
        inner = eqx.nn.MultiheadAttention(4, 16, key=key())

        class Own(eqx.Module):  # type: ignore[name-defined, misc]
            inner: Any

            def __call__(self, x: Any) -> Any:
                return self.inner(x, x, x)

        return Own(inner)

    def recurrent(eqx: Any) -> Any:
        cell = eqx.nn.GRUCell(16, 8, key=key())

        class Own(eqx.Module):  # type: ignore[name-defined, misc]
            cell: Any

            def __call__(self, x: Any) -> Any:
                return jax.lax.scan(lambda h, x: (self.cell(x, h), None), jnp.zeros(8), x)[0]

        return Own(cell)

    return {
        "mlp": (lambda eqx: eqx.nn.MLP(16, 8, 32, 2, key=key()), ROWS),
        "conv": (lambda eqx: eqx.nn.Conv2d(3, 8, 3, key=key()), of(8, 3, 8, 8)),
        "norm": (lambda eqx: eqx.nn.LayerNorm(16), ROWS),
        "group_norm": (lambda eqx: eqx.nn.GroupNorm(4, 16), of(8, 16, 6)),
        "attention": (attention, TOKENS),
        "recurrent": (recurrent, of(8, 6, 16)),
        "pool": (
            lambda eqx: eqx.nn.Sequential(
                [
                    eqx.nn.Conv2d(3, 4, 3, key=key()),
                    eqx.nn.MaxPool2d(2, 2),
                    eqx.nn.Lambda(jnp.ravel),
                ]
            ),
            of(8, 3, 8, 8),
        ),
        "rotary": (lambda eqx: eqx.nn.RotaryPositionalEmbedding(16), TOKENS),
    }


for each in ("mlp", "conv", "norm", "group_norm", "attention", "recurrent", "pool", "rotary"):
    named(f"equinox_{each}", lambda name=each: equinox(*_equinox_list()[name]))


@program
def equinox_batch_norm() -> Case:
    """The state goes in and out, the statistics over an axis of `vmap`."""
    eqx = library("equinox")
    model, state = eqx.nn.make_with_state(eqx.nn.BatchNorm)(16, axis_name="batch", mode="batch")

    def apply(state: Any, x: Any) -> Any:
        along = jax.vmap(model, axis_name="batch", in_axes=(0, None), out_axes=(0, None))
        return along(x, state)

    return Case(apply, (state, ROWS))


# haiku


def haiku(make: Any, x: Any) -> Case:
    hk = library("haiku")
    made = hk.without_apply_rng(hk.transform(lambda x: make(hk)(x)))
    return trained(made.apply, made.init(key(), drawn(*x.shape, dtype=str(x.dtype))), x)


def _haiku_list() -> dict[str, tuple[Any, Any]]:
    def unrolled(hk: Any) -> Any:
        core = hk.LSTM(8)
        return lambda x: hk.dynamic_unroll(core, x, core.initial_state(8), time_major=False)[0]

    def stacked(hk: Any) -> Any:
        return hk.experimental.layer_stack(3)(lambda x: jnp.tanh(hk.Linear(16)(x)))

    def attention(hk: Any) -> Any:
        layer = hk.MultiHeadAttention(4, 4, w_init=hk.initializers.RandomNormal())
        return lambda x: layer(x, x, x)

    return {
        "mlp": (lambda hk: hk.nets.MLP([32, 8]), ROWS),
        "conv": (lambda hk: hk.Conv2D(8, 3), IMAGES),
        "norm": (lambda hk: hk.LayerNorm(-1, True, True), ROWS),
        "attention": (attention, TOKENS),
        "unrolled": (unrolled, of(8, 6, 16)),
        "stacked": (stacked, ROWS),
        "embed": (lambda hk: hk.Embed(32, 16), of(8, 12, dtype="int32")),
        "deconv": (lambda hk: hk.Conv2DTranspose(4, 2, 2), IMAGES),
    }


for each in ("mlp", "conv", "norm", "attention", "unrolled", "stacked", "embed", "deconv"):
    named(f"haiku_{each}", lambda name=each: haiku(*_haiku_list()[name]))


@program
def haiku_batch_norm() -> Case:
    hk = library("haiku")
    net = hk.without_apply_rng(
        hk.transform_with_state(lambda x: hk.BatchNorm(True, True, 0.9)(hk.Linear(8)(x), True))
    )
    params, state = net.init(key(), drawn(8, 16))
    return Case(
        jax.value_and_grad(lambda p, s, x: _with_state(net, p, s, x), has_aux=True),
        (params, state, ROWS),
        weights=True,
    )


def _with_state(net: Any, params: Any, state: Any, x: Any) -> Any:
    y, kept = net.apply(params, state, x)
    return (y**2).mean(), kept


# penzai


@program
def penzai_mlp() -> Case:
    pz = library("penzai.pz")
    model = library("penzai.models.simple_mlp").MLP.from_config(
        name="mlp", init_base_rng=key(), feature_sizes=[16, 32, 8]
    )
    model, variables = pz.unbind_params(model, freeze=True)

    def step(variables: Any, x: Any) -> Any:
        def loss(variables: Any) -> Any:
            bound = pz.bind_variables(model, variables)
            named = pz.nx.wrap(x).tag("batch", "features")
            return (bound(named).unwrap("batch", "features") ** 2).mean()

        return jax.value_and_grad(loss)(variables)

    return Case(step, (variables, ROWS))


@program
def penzai_named() -> Case:
    pz = library("penzai.pz")

    def fn(w: Any, x: Any) -> Any:
        a = pz.nx.wrap(w).tag("in", "out")
        b = pz.nx.wrap(x).tag("rows", "in")
        return pz.nx.nmap(jnp.dot)(b.untag("in"), a.untag("in")).unwrap("rows", "out")

    return graded(fn, of(16, 8), ROWS)


# e3nn


def _e3nn_list() -> dict[str, Case]:
    e3nn = library("e3nn_jax")
    parts = lambda x: e3nn.IrrepsArray("4x0e + 4x1o", x)  # noqa: E731

    def product(w: Any, x: Any) -> Any:
        return e3nn.tensor_product(parts(x * w), parts(x)).array

    def gate(w: Any, x: Any) -> Any:
        return e3nn.gate(e3nn.IrrepsArray("4x0e + 4x0e + 4x1o", x * w)).array

    def harmonics(w: Any, x: Any) -> Any:
        return e3nn.spherical_harmonics(
            [0, 1, 2], e3nn.IrrepsArray("1o", x * w), normalize=True
        ).array

    def norm(w: Any, x: Any) -> Any:
        return e3nn.norm(parts(x * w)).array

    linear = library("e3nn_jax").flax.Linear("4x0e + 2x1o")
    given = parts(drawn(8, 16))
    params = linear.init(key(), given)
    return {
        "product": graded(product, of(16), ROWS),
        "gate": graded(gate, of(20), of(8, 20)),
        "harmonics": graded(harmonics, of(3), of(8, 3)),
        "norm": graded(norm, of(16), ROWS),
        "linear": trained(lambda p, x: linear.apply(p, parts(x)).array, params, ROWS),
    }


for each in ("product", "gate", "harmonics", "norm", "linear"):
    named(f"e3nn_{each}", lambda name=each: _e3nn_list()[name])


# jraph


def graph(x: Any) -> Any:
    jraph = library("jraph")
    at = jnp.arange(8)
    one = jnp.array([8])
    edges = x[(at + 1) % 8] - x
    return jraph.GraphsTuple(x, edges, at, (at * 3 + 1) % 8, jnp.ones((1, 16)), one, one)


def _jraph_list() -> dict[str, Case]:
    jraph = library("jraph")

    def convolved(w: Any, x: Any) -> Any:
        return jraph.GraphConvolution(lambda n: n @ w, add_self_edges=True)(graph(x)).nodes

    def attended(w: Any, x: Any) -> Any:
        query = lambda n: n @ w  # noqa: E731
        logits = lambda s, r, e: (s + r).sum(-1, keepdims=True)  # noqa: E731
        return jraph.GAT(query, logits)(graph(x)._replace(edges=None)).nodes

    def network(w: Any, x: Any) -> Any:
        made = jraph.GraphNetwork(
            update_edge_fn=lambda e, s, r, g: jnp.tanh((e + s + r) @ w),
            update_node_fn=lambda n, s, r, g: jnp.tanh((n + s + r) @ w),
            update_global_fn=lambda n, e, g: g + (n + e).sum(0, keepdims=True),
        )(graph(x))
        return made.nodes, made.edges, made.globals

    def softmax(w: Any, x: Any) -> Any:
        ids = jnp.array([0, 0, 1, 1, 1, 2, 2, 3])
        return jraph.segment_softmax((x @ w), ids, 4), jraph.segment_normalize(x @ w, ids, 4)

    return {
        "convolution": graded(convolved, of(16, 8), ROWS),
        "attention": graded(attended, of(16, 8), ROWS),
        "network": graded(network, of(16, 16), ROWS),
        "softmax": graded(softmax, of(16), ROWS),
    }


for each in ("convolution", "attention", "network", "softmax"):
    named(f"jraph_{each}", lambda name=each: _jraph_list()[name])


# dm_pix


def _pix_list() -> dict[str, Any]:
    pix = library("dm_pix")
    return {
        "blur": lambda x: pix.gaussian_blur(x, 1.0, 3),
        "contrast": lambda x: pix.adjust_contrast(x, 0.7),
        "hue": lambda x: pix.adjust_hue(x, 0.1),
        "flip": lambda x: pix.flip_up_down(pix.flip_left_right(x)),
        "rotate": lambda x: jax.vmap(lambda i: pix.rotate(i, 0.3))(x),
        "similarity": lambda x: pix.ssim(x, x[:, ::-1] * 0.9, filter_size=3),
        "cut": lambda x: jax.vmap(lambda i: pix.random_crop(key(), i, (4, 4, 3)))(x),
        "to_blocks": lambda x: pix.space_to_depth(x, 2),
        "solarize": lambda x: pix.solarize(x, 0.5),
        "elastic": lambda x: jax.vmap(
            lambda i: pix.elastic_deformation(key(), i, alpha=1.0, sigma=1.0)
        )(x),
    }


def _pix(name: str) -> Case:
    fn = _pix_list()[name]
    return graded(lambda w, x: fn(jax.nn.sigmoid(x * w)), of(3), IMAGES)


for each in (
    *("blur", "contrast", "hue", "flip", "rotate", "similarity", "cut", "to_blocks"),
    *("solarize", "elastic"),
):
    named(f"pix_{each}", lambda name=each: _pix(name))


@program
def chex_dataclass() -> Case:
    chex = library("chex")

    @chex.dataclass  # type: ignore[untyped-decorator]
    class State:
        w: Any
        n: Any

    step = lambda s, x: s.replace(w=s.w + x.mean(0), n=s.n + 1)  # noqa: E731
    return Case(step, (State(w=of(16), n=of(dtype="int32")), ROWS))
