"""Programs of public libraries, in both modes: which modules have one device's values.

python tests/peers.py [name ...], with what is there of flax, optax, equinox, haiku, jaxopt, jraph,
lineax, optimistix, blackjax, numpyro, penzai and dm_pix. It is no part of `make test`.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cpu_devices import flags

os.environ["XLA_FLAGS"] = flags(8)
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["EQX_ON_ERROR"] = "off"  # its checks are closures that run on the host

import jax
import jax.numpy as jnp
import models
import numpy as np

import shardwright as sw
from shardwright.codegen.verify import program_values
from shardwright.codegen.verify.load import load

MESH = sw.Mesh({"d": 4, "t": 2})
PROGRAMS: dict[str, Callable[[], tuple[Any, ...]]] = {}
Made = tuple[Any, ...]


def program(make: Callable[[], Made]) -> Callable[[], Made]:
    """Note what makes a function and its arguments; rows of the last one are split over d."""
    PROGRAMS[make.__name__] = make
    return make


def of(*shape: int, dtype: str = "float32") -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def key() -> Any:
    return jax.random.key(0)


def trained(apply: Any, init: Any, x: Any, optimizer: Any = None) -> Made:
    """A step of training: gradients, and updates by an optimizer."""
    params = jax.eval_shape(init, key(), x)
    if optimizer is None:
        return jax.grad(lambda p, x: (apply(p, x) ** 2).mean()), params, x

    def step(p: Any, state: Any, x: Any) -> Any:
        loss, grads = jax.value_and_grad(lambda p: (apply(p, x) ** 2).mean())(p)
        updates, state = optimizer.update(grads, state, p)
        return jax.tree.map(lambda a, b: a + b, p, updates), state, loss

    return step, params, jax.eval_shape(optimizer.init, params), x


def _linen() -> Any:
    return importlib.import_module("flax.linen")


def linen_model(name: str) -> tuple[Any, Any]:
    """A module of flax, and the type of what it takes."""
    nn = _linen()
    small = {
        "dense": (nn.Sequential([nn.Dense(32), nn.gelu, nn.Dense(8)]), of(8, 16)),
        "norms": (
            nn.Sequential([nn.LayerNorm(), nn.Dense(16), nn.RMSNorm(), nn.GroupNorm(4)]),
            of(8, 16),
        ),
        "conv": (
            nn.Sequential([nn.Conv(8, (3, 3)), nn.relu, lambda x: nn.max_pool(x, (2, 2), (2, 2))]),
            of(8, 8, 8, 3),
        ),
        "attention": (nn.SelfAttention(4), of(8, 12, 16)),
        "lstm": (nn.RNN(nn.LSTMCell(16)), of(8, 6, 16)),
        "gru": (nn.RNN(nn.GRUCell(16)), of(8, 6, 16)),
        "bilinear": (nn.DenseGeneral((4, 4)), of(8, 12, 16)),
        "weight_norm": (nn.WeightNorm(nn.Dense(16)), of(8, 16)),
    }
    return small[name]


def _linen_program(name: str) -> None:
    def make() -> Made:
        module, x = linen_model(name)
        return trained(module.apply, module.init, x)

    make.__name__ = f"linen_{name}"
    program(make)


for each in ("dense", "norms", "conv", "attention", "lstm", "gru", "bilinear", "weight_norm"):
    _linen_program(each)


def _optax_program(name: str, *arguments: Any, **words: Any) -> None:
    def make() -> Made:
        optax = importlib.import_module("optax")
        module, x = linen_model("dense")
        return trained(module.apply, module.init, x, getattr(optax, name)(*arguments, **words))

    make.__name__ = f"optax_{name}"
    program(make)


for each in ("sgd", "adam", "adamw", "lion", "lamb", "adafactor", "rmsprop", "adagrad", "radam"):
    _optax_program(each, 1e-3)
for each in ("nadam", "adabelief", "novograd", "yogi", "sm3", "amsgrad", "adamax", "fromage"):
    _optax_program(each, 1e-3)


@program
def flax_train_state() -> Made:
    train_state = importlib.import_module("flax.training.train_state")
    optax = importlib.import_module("optax")
    module, x = linen_model("dense")
    params = jax.eval_shape(module.init, key(), x)
    made = lambda p: train_state.TrainState.create(  # noqa: E731
        apply_fn=module.apply, params=p, tx=optax.adamw(1e-3)
    )

    def step(state: Any, x: Any) -> Any:
        grads = jax.grad(lambda p: (state.apply_fn(p, x) ** 2).mean())(state.params)
        return state.apply_gradients(grads=grads)

    return step, jax.eval_shape(made, params), x


@program
def flax_nnx_state() -> Made:
    nnx = importlib.import_module("flax.nnx")
    model = nnx.Sequential(
        nnx.Linear(16, 32, rngs=nnx.Rngs(0)), nnx.Linear(32, 8, rngs=nnx.Rngs(0))
    )
    graph, state = nnx.split(model)

    def step(state: Any, x: Any) -> Any:
        grads = jax.grad(lambda s: (nnx.merge(graph, s)(x) ** 2).mean())(state)
        return jax.tree.map(lambda a, b: a - 0.1 * b, state, grads)

    return step, jax.eval_shape(lambda: state), of(8, 16)


def _equinox(make: Callable[[Any], Any], x: Any) -> Made:
    eqx = importlib.import_module("equinox")
    arrays, static = eqx.partition(make(eqx), eqx.is_array)

    def step(arrays: Any, x: Any) -> Any:
        loss = lambda a: (jax.vmap(eqx.combine(a, static))(x) ** 2).mean()  # noqa: E731
        return jax.tree.map(lambda a, b: a - 0.1 * b, arrays, jax.grad(loss)(arrays))

    return step, jax.eval_shape(lambda: arrays), x


@program
def equinox_mlp() -> Made:
    return _equinox(lambda eqx: eqx.nn.MLP(16, 8, 32, 2, key=key()), of(8, 16))


@program
def equinox_conv() -> Made:
    return _equinox(lambda eqx: eqx.nn.Conv2d(3, 8, 3, key=key()), of(8, 3, 8, 8))


@program
def equinox_norm() -> Made:
    return _equinox(lambda eqx: eqx.nn.LayerNorm(16), of(8, 16))


@program
def equinox_attention() -> Made:
    def make(eqx: Any) -> Any:
        inner = eqx.nn.MultiheadAttention(4, 16, key=key())

        class Own(eqx.Module):  # type: ignore[name-defined, misc]
            inner: Any

            def __call__(self, x: Any) -> Any:
                return self.inner(x, x, x)

        return Own(inner)

    return _equinox(make, of(8, 12, 16))


def _haiku(make: Callable[[Any], Any], x: Any) -> Made:
    hk = importlib.import_module("haiku")
    made = hk.without_apply_rng(hk.transform(lambda x: make(hk)(x)))
    return trained(made.apply, made.init, x)


@program
def haiku_mlp() -> Made:
    return _haiku(lambda hk: hk.nets.MLP([32, 8]), of(8, 16))


@program
def haiku_conv() -> Made:
    return _haiku(lambda hk: hk.Conv2D(8, 3), of(8, 8, 8, 3))


@program
def haiku_norm() -> Made:
    return _haiku(lambda hk: hk.LayerNorm(-1, True, True), of(8, 16))


@program
def jaxopt_descent() -> Made:
    jaxopt = importlib.import_module("jaxopt")
    solver = jaxopt.GradientDescent(lambda w, x: ((x @ w - 1) ** 2).mean(), maxiter=5, jit=False)
    return (lambda w, x: solver.run(w, x).params), of(16), of(8, 16)


@program
def jaxopt_projection() -> Made:
    jaxopt = importlib.import_module("jaxopt")
    return jax.vmap(jaxopt.projection.projection_simplex), of(8, 16)


@program
def lineax_solve() -> Made:
    lx = importlib.import_module("lineax")

    def solved(b: Any, x: Any) -> Any:
        matrix = x.T @ x + jnp.eye(16)
        return lx.linear_solve(lx.MatrixLinearOperator(matrix), b, lx.LU()).value

    return solved, of(16), of(8, 16)


@program
def optimistix_newton() -> Made:
    optx = importlib.import_module("optimistix")

    def root(x: Any) -> Any:
        f = lambda y, x: y + 0.1 * jnp.tanh(y) - x  # noqa: E731
        return optx.root_find(f, optx.Newton(1e-4, 1e-4), x[0], args=x[0], max_steps=16).value

    return root, of(8, 16)


@program
def diffrax_ode() -> Made:
    diffrax = importlib.import_module("diffrax")

    def solved(x: Any) -> Any:
        term = diffrax.ODETerm(lambda t, y, args: -y)
        made = diffrax.diffeqsolve(term, diffrax.Euler(), 0.0, 1.0, 0.25, x)
        return made.ys

    return solved, of(8, 16)


@program
def numpyro_density() -> Made:
    dist = importlib.import_module("numpyro.distributions")
    return (lambda m, x: dist.Normal(m, 1.0).log_prob(x).sum()), of(16), of(8, 16)


@program
def blackjax_hmc() -> Made:
    blackjax = importlib.import_module("blackjax")
    sampler = blackjax.hmc(lambda x: -(x**2).sum(), 0.1, jnp.ones(16), 4)
    state = jax.eval_shape(sampler.init, of(16))
    return (lambda state, x: sampler.step(key(), state)[0].position + x.mean(0)), state, of(8, 16)


@program
def jraph_convolution() -> Made:
    jraph = importlib.import_module("jraph")

    def convolved(w: Any, x: Any) -> Any:
        at = jnp.arange(8)
        one = jnp.array([8])
        graph = jraph.GraphsTuple(x, None, at, (at + 1) % 8, one, one, None)
        return jraph.GraphConvolution(lambda n: n @ w)(graph).nodes

    return convolved, of(16, 8), of(8, 16)


@program
def pix_blur() -> Made:
    pix = importlib.import_module("dm_pix")
    return (lambda x: pix.gaussian_blur(x, 1.0, 3)), of(8, 16, 16, 3)


@program
def pix_colors() -> Made:
    pix = importlib.import_module("dm_pix")
    return (lambda x: pix.adjust_contrast(pix.rgb_to_hsv(jax.nn.sigmoid(x)), 0.7)), of(8, 16, 16, 3)


@program
def chex_dataclass() -> Made:
    chex = importlib.import_module("chex")

    @chex.dataclass  # type: ignore[untyped-decorator]
    class State:
        w: Any
        n: Any

    step = lambda s, x: s.replace(w=s.w + x.mean(0), n=s.n + 1)  # noqa: E731
    return step, State(w=of(16), n=of(dtype="int32")), of(8, 16)


def wrong(make: Callable[[], Made], mode: str, folder: str) -> str:
    """What is wrong with the module of a program, the empty string if nothing is."""
    fn, *avals = make()
    rows = f'[{{"d"}}{", {}" * (len(avals[-1].shape) - 1)}]'
    given = (*(None for _ in avals[:-1]), rows)
    made = sw.partition(fn, *avals, mesh=MESH, in_shardings=given, mode=mode)
    sw.emit(made).write(Path(folder) / "planned")
    module = load(Path(folder) / "planned" / "jax_spmd.py")
    own = module.program.__code__.co_varnames
    options = {"template": jax.eval_shape(fn, *avals)} if "template" in own else {}
    run = module.program(models.jax_mesh(**MESH.sizes), **options)
    given = program_values.arguments(tuple(avals))
    one, ours = jax.jit(fn)(*given), run(*given)
    if jax.tree.structure(one) != jax.tree.structure(ours):
        return "another tree of results"
    for number, (a, b) in enumerate(zip(*map(jax.tree.leaves, (one, ours)), strict=True)):
        if not np.allclose(
            a, b, rtol=1e-3, atol=1e-4 * max(1, float(np.max(np.abs(a), initial=0)))
        ):
            return f"result {number} is off by {np.max(np.abs(np.asarray(a) - np.asarray(b)))}"
    return ""


def main() -> None:
    warnings.simplefilter("ignore")
    counts = {"right": 0, "wrong": 0, "refused": 0, "not installed": 0}
    for name, make in PROGRAMS.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        for mode in ("as_shardy", "cheapest"):
            try:
                with tempfile.TemporaryDirectory() as folder:
                    said = wrong(make, mode, folder)
                kind = "wrong" if said else "right"
            except ModuleNotFoundError as error:
                kind, said = "not installed", str(error)
            except sw.InputError as error:
                kind, said = "refused", " | ".join(str(error).splitlines())
            except Exception as error:  # whatever is raised is a fault
                kind, said = "wrong", f"{type(error).__name__}: {error}"
            counts[kind] += 1
            print(f"{name} {mode}: {kind} {said[:300]}", flush=True)
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()))


if __name__ == "__main__":
    main()
