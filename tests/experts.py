"""A mixture of experts whose tokens go to experts on other devices: dispatched by einsum, as in
GShard, and by indices. Each device has a group of tokens and some of the experts."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from models import shaped

GROUPS, TOKENS, WIDTH, EXPERTS, HIDDEN, SLOTS = 8, 32, 64, 16, 128, 4


def parameters() -> dict[str, Any]:
    return {
        "gate": shaped(WIDTH, EXPERTS),
        "up": shaped(EXPERTS, WIDTH, HIDDEN),
        "down": shaped(EXPERTS, HIDDEN, WIDTH),
    }


def routed(p: Any, x: Any) -> tuple[Any, Any, Any]:
    """The best expert of each token, how much it counts, and its slot there."""
    scores = jax.nn.softmax(jnp.einsum("gsm,me->gse", x, p["gate"]))
    expert = jnp.argmax(scores, -1)
    chosen = jax.nn.one_hot(expert, EXPERTS)
    slot = (jnp.cumsum(chosen, 1) * chosen).sum(-1).astype(jnp.int32) - 1
    return expert, (scores * chosen).sum(-1), slot


def worked(p: Any, given: Any) -> Any:
    """What experts make of what they are given."""
    hidden = jax.nn.relu(jnp.einsum("egcm,emf->egcf", given, p["up"]))
    return jnp.einsum("egcf,efm->egcm", hidden, p["down"])


def by_einsum(p: Any, x: Any) -> Any:
    expert, weight, slot = routed(p, x)
    places = jax.nn.one_hot(expert, EXPERTS)[..., None] * jax.nn.one_hot(slot, SLOTS)[:, :, None]
    given = jnp.einsum("gsec,gsm->egcm", places, x)
    return jnp.einsum("egcm,gsec->gsm", worked(p, given), places * weight[..., None, None])


def by_indices(p: Any, x: Any) -> Any:
    expert, weight, slot = routed(p, x)
    fits = slot < SLOTS
    place = jnp.where(fits, expert * SLOTS + slot, EXPERTS * SLOTS)

    def sent(x: Any, place: Any) -> Any:
        return jnp.zeros((EXPERTS * SLOTS, WIDTH), x.dtype).at[place].add(x, mode="drop")

    given = jax.vmap(sent)(x, place).reshape(-1, EXPERTS, SLOTS, WIDTH).transpose(1, 0, 2, 3)
    made = worked(p, given).transpose(1, 0, 2, 3).reshape(-1, EXPERTS * SLOTS, WIDTH)
    taken = jax.vmap(lambda m, at: m.at[at].get(mode="clip"))(made, place)
    return taken * (weight * fits)[..., None]


def step_of(layer: Any) -> Any:
    """A step of gradient descent."""

    def step(p: Any, x: Any) -> Any:
        error, gradient = jax.value_and_grad(lambda p: (layer(p, x) ** 2).mean())(p)
        return error, jax.tree.map(lambda w, g: w - 0.1 * g, p, gradient)

    return step
