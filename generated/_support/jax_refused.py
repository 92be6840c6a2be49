"""Errors of modules emitted without derivatives and `jax.vmap`."""

import jax


def refuse_derivative(*_):
    """Raise NotImplementedError for a derivative."""
    raise NotImplementedError("no derivative: emit with --gradient, or reshard stop_gradient(x)")


def refuse_batch(*_):
    """Raise NotImplementedError for `jax.vmap`."""
    raise NotImplementedError("jax.vmap of this module: emit it with --feature vmap")


_underived = jax.custom_jvp(lambda x: x)
_underived.defjvp(refuse_derivative)
only_moved = jax.custom_batching.custom_vmap(_underived)
only_moved.def_vmap(refuse_batch)
