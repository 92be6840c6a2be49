"""Small floats moved as integers of their width.

XLA may compute in larger floats where they are but moved, which changes NaNs. Of other elements it
moves every bit, and on CPU another type takes a pass over memory.
"""

from jax import lax

from .jax_meshes import bits_of


def as_bits(move, shard, axes):
    """Return what `move` makes of a shard, its elements moved as integers of their width."""
    y = move(lax.bitcast_convert_type(shard, bits_of(shard.dtype)))
    me = lax.axis_index(axes)

    def branch(y):
        return lax.cond(me < 0, lax.bitwise_not, lambda y: y, y)

    # On CPU bits come out of a branch, with which XLA fuses nothing: a loop that chooses bits and
    # makes floats of them chooses floats, and changes NaNs of 16 bits.
    y = lax.platform_dependent(y, cpu=branch, default=lambda y: y)
    return lax.bitcast_convert_type(y, shard.dtype)


def as_bits_but_on_tpu(move, shard, axes):
    """As `as_bits`, but floats on a TPU, where another type takes two passes over memory: of what
    the generator knows that every bit stays."""
    return lax.platform_dependent(shard, tpu=move, default=lambda shard: as_bits(move, shard, axes))
