"""Faults of the plain JAX modules, and of the support that they run on."""

from __future__ import annotations

from .fault import Fault


def _jax(bundle: str, file: str, right: str, wrong: str, said: str) -> Fault:
    return Fault("jax_xla", bundle, file, right, wrong, said)


VALUES = "elements are wrong"

JAX = {
    "written where it is read": _jax(
        "turn", "xla_rounds.py",
        "reads[box.sender], writes[box.receiver] = box.read, box.write",
        "reads[box.sender], writes[box.receiver] = box.read, box.read", VALUES,
    ),
    "taken by those who receive nothing": _jax(
        "turn", "xla_rounds.py",
        "box = jnp.where(at(self.takes, me), box, own)", "box = box + 0 * own", "",
    ),
    "sent the other way": _jax(
        "turn", "xla_rounds.py",
        "return lax.ppermute(box, axes, self.pairs) if self.sends else box",
        "return lax.ppermute(box, axes, [p[::-1] for p in self.pairs]) if self.sends else box",
        "",
    ),
    "padding at the start": _jax(
        "back", "jax_padding.py",
        "[(0, padded - size) for size, padded in sizes]",
        "[(padded - size, 0) for size, padded in sizes]", "pad(x)",
    ),
    "the end of what is padded": _jax(
        "turn", "jax_padding.py",
        "return y[tuple(slice(size) for size in self.whole)]",
        "return y[tuple(slice(-size, None) for size in self.whole)]", "unpad(y)",
    ),
    "cotangents of the other sign": _jax(
        "back", "jax_reverse.py", "    return x_bar\n", "    return -x_bar\n", "the derivative",
    ),
    "two rounds in one": _jax(
        "turn", "jax_xla.py", "return number % 3", "return number % 2", "",
    ),
    "the sharding of the source for the result": _jax(
        "turn", "jax_xla.py",
        'TARGET_AXES, P(None, "x"))', 'TARGET_AXES, P("x", None))', "",
    ),
    "the largest term for the sum": _jax(
        "reduced", "jax_xla.py", 'lax.psum(x, "x")', 'lax.pmax(x, "x")', VALUES,
    ),
    "read where it is written": _jax(
        "both", "jax_group.py",
        "each.window_of(shards[kind], each.reads, me)",
        "each.window_of(shards[kind], each.writes, me)", VALUES,
    ),
    "lines of a group from the start": _jax(
        "both", "jax_group.py", "            begin = end\n", "            begin = 0\n", "",
    ),
    "a group that does not take padding off": _jax(
        "both", "jax_group.py",
        "give_back([host.unpad(y) for host, y in zip(", "give_back([y for _, y in zip(", "unpad",
    ),
    "a group that pads with another's shape": _jax(
        "both", "jax_group.py",
        "give_back([host.pad(x) for host, x in zip(",
        "give_back([host.pad(x)[::-1] for host, x in zip(", "pad",
    ),
    "an operand twice": _jax(
        "product", "jax_xla.py", "jnp.matmul(a, b,", "jnp.matmul(a + a, b,", "result at",
    ),
    "parts in another order": _jax(
        "product", "jax_xla.py",
        'lax.all_gather(a, "x", axis=0, tiled=True)',
        'lax.all_gather(lax.ppermute(a, "x", [(0, 1), (1, 0)]), "x", axis=0, tiled=True)',
        "result at",
    ),
    "twice the cotangent": _jax(
        "product", "jax_matmul_gradient.py",
        "found = lhs.multiplied(y_bar, b, *how)", "found = 2 * lhs.multiplied(y_bar, b, *how)",
        "the cotangent of lhs",
    ),
}  # fmt: skip
"""By name; `said` is part of what `verify` says."""
