"""Programs of optax: optimizers, wrappers of them, and losses."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from program_cases import Case, drawn, graded, library, loss_of, named, of, program
from programs_linen import of_model

PLAIN = "sgd adam adamw lion lamb lars adafactor rmsprop adagrad adadelta radam nadam nadamw adan"
PLAIN += " adabelief novograd yogi sm3 amsgrad adamax adamaxw fromage noisy_sgd sign_sgd"
PLAIN += " optimistic_gradient_descent"
CONTRIBUTED = "muon prodigy dadapt_adamw schedule_free_adamw sophia ademamix momo_adam"


def optimizer(name: str) -> Any:
    optax = library("optax")
    if name == "noisy_sgd":
        return optax.noisy_sgd(1e-2, 0.1)
    return getattr(optax, name)(1e-2)


for each in PLAIN.split():
    named(f"optax_{each}", lambda name=each: of_model("dense", optimizer(name)))


def contributed(name: str) -> Any:
    made = getattr(library("optax.contrib"), name)
    return made() if name in ("prodigy", "dadapt_adamw") else made(1e-2)


for each in ("muon", "prodigy", "dadapt_adamw", "schedule_free_adamw", "ademamix"):
    named(f"optax_{each}", lambda name=each: of_model("dense", contributed(name)))


def wrappers() -> dict[str, Any]:
    o = library("optax")
    return {
        "clipped": o.chain(o.clip_by_global_norm(0.1), o.adam(1e-2)),
        "scheduled": o.sgd(o.warmup_cosine_decay_schedule(0.0, 1.0, 2, 10), momentum=0.9),
        "accumulated": o.MultiSteps(o.adam(1e-2), every_k_schedule=2),
        "masked": o.masked(o.sgd(1e-2), lambda p: jax.tree.map(lambda x: x.ndim > 1, p)),
        "finite": o.apply_if_finite(o.sgd(1e-2), 3),
        "injected": o.inject_hyperparams(o.adam)(learning_rate=1e-2),
        "two": o.partition(
            {"matrix": o.adam(1e-2), "vector": o.sgd(1e-2)},
            lambda p: jax.tree.map(lambda x: "matrix" if x.ndim > 1 else "vector", p),
        ),
        "ema": o.chain(o.ema(0.9), o.scale(-1e-2)),
        "trust": o.chain(o.adaptive_grad_clip(0.1), o.scale_by_trust_ratio(), o.scale(-1e-2)),
        "centralized": o.chain(o.centralize(), o.sgd(1e-2)),
    }


for each in (
    *("clipped", "scheduled", "accumulated", "masked", "finite", "injected", "two"),
    *("ema", "trust", "centralized"),
):
    named(f"optax_{each}", lambda name=each: of_model("dense", wrappers()[name]))


@program
def optax_lbfgs() -> Case:
    """A step of L-BFGS with its line search, which evaluates the loss in a loop."""
    solver = library("optax").lbfgs(1.0)
    loss = lambda w, x: ((x @ w - 1.0) ** 2).mean()  # noqa: E731
    w = drawn(16)

    def step(w: Any, state: Any, x: Any) -> Any:
        of_x = lambda w: loss(w, x)  # noqa: E731
        value, gradient = jax.value_and_grad(of_x)(w)
        updates, state = solver.update(
            gradient, state, w, value=value, grad=gradient, value_fn=of_x
        )
        return w + updates, value

    return Case(step, (w, solver.init(w), of(8, 16)))


@program
def optax_private() -> Case:
    """Gradients of each example, clipped and noised."""
    optax = library("optax")
    aggregate = optax.contrib.differentially_private_aggregate(1.0, 0.1, 0)
    w = drawn(16, 4)

    def step(w: Any, state: Any, x: Any) -> Any:
        each = jax.vmap(jax.grad(lambda w, x: (x @ w).sum() ** 2), (None, 0))(w, x)
        return aggregate.update(each, state)[0]

    return Case(step, (w, aggregate.init(w), of(8, 16)))


def losses() -> dict[str, Case]:
    o = library("optax")
    labels = drawn(8, dtype="int32")
    soft = jax.nn.softmax(drawn(8, 16))
    padding = jnp.zeros((8, 12))
    return {
        "cross_entropy": graded(lambda x: o.softmax_cross_entropy(x, soft), of(8, 16)),
        "integer_labels": graded(
            lambda x: o.softmax_cross_entropy_with_integer_labels(x, labels), of(8, 16)
        ),
        "binary": graded(lambda x: o.sigmoid_binary_cross_entropy(x, soft), of(8, 16)),
        "focal": graded(lambda x: o.sigmoid_focal_loss(x, soft, alpha=0.25), of(8, 16)),
        "huber": graded(lambda x: o.huber_loss(x, soft), of(8, 16)),
        "cosine": graded(lambda x: o.cosine_distance(x, soft), of(8, 16)),
        "divergence": graded(lambda x: o.kl_divergence(jax.nn.log_softmax(x), soft), of(8, 16)),
        "hinge": graded(lambda x: o.losses.multiclass_hinge_loss(x, labels), of(8, 16)),
        "contrastive": graded(lambda x: o.ntxent(x, labels), of(8, 16)),
        "ranking": graded(lambda x: o.losses.ranking_softmax_loss(x, soft), of(8, 16)),
        "perceptron": graded(
            lambda x: o.losses.perceptron_loss(x, jnp.sign(soft - 0.05)), of(8, 16)
        ),
        "sequences": graded(
            lambda x: o.ctc_loss(x, padding, jnp.ones((8, 3), int), jnp.zeros((8, 3))),
            of(8, 12, 5),
        ),
        "sparse_projection": graded(lambda x: o.projections.projection_simplex(x[0]), of(8, 16)),
    }


for each in (
    *("cross_entropy", "integer_labels", "binary", "focal", "huber", "cosine", "divergence"),
    *("hinge", "contrastive", "ranking", "perceptron", "sequences", "sparse_projection"),
):
    named(f"optax_loss_{each}", lambda name=each: losses()[name])


@program
def optax_sharpness_aware() -> Case:
    """Two gradients a step, the second where the first one leads."""
    optax = library("optax")
    tx = optax.contrib.sam(optax.sgd(1e-2), optax.sgd(0.05), opaque_mode=True)
    loss = loss_of(lambda w, x: jnp.tanh(x @ w))
    w = drawn(16, 4)

    def step(w: Any, state: Any, x: Any) -> Any:
        gradient = jax.grad(loss)
        updates, state = tx.update(gradient(w, x), state, w, grad_fn=lambda p, _: gradient(p, x))
        return w + updates, state

    return Case(step, (w, tx.init(w), of(8, 16)))
