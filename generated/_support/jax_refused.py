"""Errors of modules emitted without derivatives and `jax.vmap`."""

import jax


def refuse_derivative(*_):
    """Raise NotImplementedError for a derivative."""
    raise NotImplementedError(
        "this module has no derivative: emit it with gradient=True (--gradient), or pass "
        "stop_gradient(x) to reshard"
    )


def refuse_batch(*_):
    """Raise NotImplementedError for `jax.vmap`."""
    raise NotImplementedError(
        'this module cannot run under jax.vmap: emit it with features=("vmap",) (--feature vmap)'
    )


_underived = jax.custom_jvp(lambda x: x)
_underived.defjvp(refuse_derivative)
only_moved = jax.custom_batching.custom_vmap(_underived)
only_moved.def_vmap(refuse_batch)
