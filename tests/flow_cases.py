"""Functions with loops, branches, what is computed again, and manual computations, for meshes of
the axes d and t; each with shardings of its arguments."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import PartitionSpec as P
from models import shaped

LAYERS = {"a": shaped(3, 16, 32), "b": shaped(3, 32, 16)}
ONE = {"a": shaped(16, 32), "b": shaped(32, 16)}
X = shaped(8, 16)
BATCHES = shaped(4, 8, 16)
OF_LAYERS = {"a": '[{}, {}, {"t"}]', "b": '[{}, {"t"}, {}]'}
OF_ONE = {"a": '[{}, {"t"}]', "b": '[{"t"}, {}]'}
ROWS = '[{"d"}, {}]'
SAVED = jax.checkpoint_policies.save_only_these_names("hidden")


class FlowCase(NamedTuple):
    """A function, its avals, and the shardings of its arguments."""

    fn: Callable[..., Any]
    avals: tuple[Any, ...]
    inputs: tuple[Any, ...]
    differentiable: bool = True


def layer(w: Any, x: Any) -> Any:
    return jnp.tanh(x @ w["a"]) @ w["b"]


def loss(w: Any, x: Any) -> Any:
    return (layer(w, x) ** 2).mean()


def over_layers(w: Any, x: Any, wrapped: Any = lambda body: body) -> Any:
    body = wrapped(lambda h, own: (layer(own, h), None))
    return (lax.scan(body, x, w)[0] ** 2).mean()


def checkpointed_layers(w: Any, x: Any) -> Any:
    return over_layers(w, x, partial(jax.checkpoint, policy=jax.checkpoint_policies.dots_saveable))


def backwards(w: Any, x: Any) -> Any:
    """A scan from the last layer, that gives what it goes through."""
    _, all_of_them = lax.scan(lambda h, own: (layer(own, h), h * 2), x, w, reverse=True)
    return (all_of_them**2).mean(0)


def micro_batches(w: Any, batches: Any) -> Any:
    """Gradients added up over micro-batches, and their mean taken."""

    def body(total: Any, x: Any) -> Any:
        return jax.tree.map(jnp.add, total, jax.value_and_grad(loss)(w, x)), None

    nothing = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, w))
    total, _ = lax.scan(body, nothing, batches)
    return jax.tree.map(lambda each: each / batches.shape[0], total)


def counted(w: Any, batches: Any) -> Any:
    """The same by `fori_loop`."""

    def body(i: Any, total: Any) -> Any:
        x = lax.dynamic_index_in_dim(batches, i, 0, keepdims=False)
        return jax.tree.map(jnp.add, total, jax.grad(loss)(w, x))

    return lax.fori_loop(0, batches.shape[0], body, jax.tree.map(jnp.zeros_like, w))


def momentum(w: Any, batches: Any) -> Any:
    """A carry that is added to and read each time: its sum is made in the loop."""

    def body(total: Any, x: Any) -> Any:
        total = total + x.T @ jnp.tanh(x @ w["a"])
        return total, jnp.sqrt(jnp.abs(total)).sum()

    return lax.scan(body, jnp.zeros_like(w["a"]), batches)


def until(w: Any, x: Any) -> Any:
    def goes_on(state: Any) -> Any:
        return (state[0] < 5) & (jnp.abs(state[1]).max() > 0.01)

    def body(state: Any) -> Any:
        return state[0] + 1, jnp.sin(layer(w, state[1]))

    return lax.while_loop(goes_on, body, (0, x))


def branch(w: Any, x: Any) -> Any:
    """A branch by a sum over what is split, with other ops and sums in each."""
    return lax.cond(x.sum() > 0, layer, lambda w, x: x * 2 + w["b"].sum(), w, x).sum()


def by_element(w: Any, x: Any) -> Any:
    """A branch by one element of what is split."""
    return lax.cond(x[5, 3] > 0, lambda x: layer(w, x), lambda x: jnp.cos(x), x)


def switched(w: Any, x: Any) -> Any:
    index = jnp.clip(jnp.int32(x[0, 0] * 10), 0, 2)
    made = (lambda x: x @ w["a"], lambda x: jnp.sin(x) @ w["a"], lambda x: jnp.tanh(x @ w["a"]))
    return lax.switch(index, made, x).sum()


def branch_in_loop(w: Any, x: Any) -> Any:
    def body(h: Any, own: Any) -> Any:
        h = lax.cond(h.sum() > 0, lambda h: layer(own, h), lambda h: h * 0.5, h)
        return h, h.sum()

    return lax.scan(body, x, w)


def again(w: Any, x: Any) -> Any:
    return jax.checkpoint(loss)(w, x)


def named(w: Any, x: Any) -> Any:
    def inner(w: Any, x: Any) -> Any:
        return (checkpoint_name(jnp.tanh(x @ w["a"]), "hidden") @ w["b"]).sum()

    return jax.checkpoint(inner, policy=SAVED)(w, x)


@jax.custom_jvp
def sine(x: Any) -> Any:
    return jnp.sin(x)


@sine.defjvp
def _(given: Any, tangents: Any) -> Any:
    return sine(given[0]), tangents[0] * jnp.cos(given[0]) * 2


@jax.custom_vjp
def product(x: Any, y: Any) -> Any:
    return x * y


product.defvjp(lambda x, y: (x * y, (x, y)), lambda kept, g: (g * kept[1] * 3, g * kept[0]))


def customs(w: Any, x: Any) -> Any:
    return (product(sine(x @ w["a"]), x @ w["a"]) @ w["b"]).sum()


def nested(w: Any, x: Any) -> Any:
    inner = jax.jit(layer)
    return inner(w, inner(w, x)).sum()


def flow_cases() -> dict[str, FlowCase]:
    """Cases by name, without manual computations."""
    layers, one = ((LAYERS, X), (OF_LAYERS, ROWS)), ((ONE, X), (OF_ONE, ROWS))
    batches = (ONE, BATCHES), (OF_ONE, '[{}, {"d"}, {}]')
    return {
        "layers": FlowCase(over_layers, *layers),
        "layers computed again": FlowCase(checkpointed_layers, *layers),
        "backwards": FlowCase(backwards, *layers),
        "micro-batches": FlowCase(micro_batches, *batches, False),
        "micro-batches by number": FlowCase(counted, *batches, False),
        "a sum that is read": FlowCase(momentum, *batches),
        "while": FlowCase(until, *one, False),
        "branch": FlowCase(branch, *one),
        "branch by an element": FlowCase(by_element, *one),
        "switch": FlowCase(switched, *one),
        "branch in a loop": FlowCase(branch_in_loop, *layers),
        "computed again": FlowCase(again, *one),
        "computed again but for a name": FlowCase(named, *one),
        "custom derivatives": FlowCase(customs, *one),
        "nested jit": FlowCase(nested, *one),
    }


def _all_collectives(x: Any, w: Any) -> Any:
    """Every collective once, along both axes."""
    place = lax.axis_index("t") + 2 * lax.axis_index(("d", "t"))
    y = lax.all_gather(x * (1.0 + place), "t", axis=1, tiled=True)
    n = lax.axis_size("d")
    z = lax.ppermute(y, "d", [(i, (i + 1) % n) for i in range(n)])
    part = lax.psum_scatter(z @ w, "t", scatter_dimension=0, tiled=True)
    turned = lax.all_to_all(part, "t", 1, 0, tiled=True)
    most = lax.pmax(lax.stop_gradient(z).max(), ("d", "t"))
    return turned * most, lax.pmean(part, "t"), lax.psum((y.sum(), y.min()), ("d", "t"))


def _untiled_collectives(x: Any, w: Any) -> Any:
    """Collectives that add or drop a dimension, with one entry for each device along an axis."""
    stacked = lax.all_gather(x @ w, "t", axis=1) * (1.0 + lax.axis_index("t"))
    return lax.all_to_all(stacked, "t", 1, 0), lax.psum_scatter(stacked, "t", scatter_dimension=1)


def manual_cases(mesh: Any) -> dict[str, FlowCase]:
    """Cases with a `shard_map` inside, on a mesh of jax."""
    mapped = partial(jax.shard_map, mesh=mesh)
    one = ((ONE, X), (OF_ONE, ROWS))
    rows = mapped(
        lambda x, w: lax.psum(x @ w, "t"),
        in_specs=(P("d", "t"), P("t", None)),
        out_specs=P("d", None),
    )
    along_t = mapped(
        lambda x, w: lax.psum(x @ w, "t"),
        in_specs=(P(None, "t"), P("t", None)),
        out_specs=P(None, None),
        axis_names={"t"},
    )
    every = mapped(
        _all_collectives,
        in_specs=(P("d", "t"), P(None, None)),
        out_specs=(P("d", "t"), P(("d", "t")), P()),
        check_vma=False,
    )
    untiled = mapped(
        _untiled_collectives,
        in_specs=(P("d", "t"), P("t", None)),
        out_specs=(P("t", "d"), P(("d", "t"))),
        check_vma=False,
    )
    ring = mapped(
        lambda x: lax.fori_loop(
            0, 3, lambda i, h: jnp.sin(lax.ppermute(h, "d", [(0, 1), (1, 0)])) + x, x
        ),
        in_specs=P("d"),
        out_specs=P("d"),
        axis_names={"d"},
    )

    def with_auto(w: Any, x: Any) -> Any:
        """Along d as in `shard_map`, along t as ours: a matmul split there, and its sum."""

        def inner(x: Any, a: Any, b: Any) -> Any:
            h = jnp.tanh(x @ a) @ b
            return h, lax.psum(jnp.abs(h).sum(), "d")

        specs = (P("d", None), P(), P())
        made = mapped(inner, in_specs=specs, out_specs=(P("d", None), P()), axis_names={"d"})
        h, total = made(x, w["a"], w["b"])
        return (h**2).sum() / total

    def in_loop(w: Any, x: Any) -> Any:
        body = lambda h, own: (along_t(jnp.tanh(h @ own["a"]), own["b"]), None)  # noqa: E731
        return (lax.scan(body, x, w)[0] ** 2).mean()

    cases = {
        "rows": FlowCase(lambda w, x: (rows(jnp.tanh(x @ w["a"]), w["b"]) ** 2).sum(), *one),
        "one axis": FlowCase(lambda w, x: (along_t(jnp.tanh(x @ w["a"]), w["b"])).sum(), *one),
        "auto axes beside": FlowCase(with_auto, *one),
        "every collective": FlowCase(lambda w, x: every(x, w["a"]), *one, False),
        "untiled collectives": FlowCase(lambda w, x: untiled(x, w["a"]), *one, False),
        "in a loop": FlowCase(in_loop, (LAYERS, X), (OF_LAYERS, ROWS)),
    }
    if dict(mesh.shape)["d"] == 2:
        cases["a loop inside"] = FlowCase(lambda w, x: (ring(x) @ w["a"]).sum(), *one)
    return cases
