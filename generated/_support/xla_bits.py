"""Small floats moved as integers of their width.

XLA may convert small floats to wider floats to move them, which changes NaNs. It preserves every
bit of other elements; these move unconverted, because a conversion costs a pass over memory on CPU.
"""

from jax import lax

from .jax_bits import bits_of


def as_bits(move, shard, axes):
    """Apply `move` to a shard whose elements are viewed as integers of their width."""
    y = move(lax.bitcast_convert_type(shard, bits_of(shard.dtype)))
    me = lax.axis_index(axes)

    def branch(y):
        return lax.cond(me < 0, lax.bitwise_not, lambda y: y, y)

    # On CPU the integers pass through a branch, which XLA does not fuse: a fused loop that selects
    # integers and converts them to floats would select floats instead, and change 16-bit NaNs.
    y = lax.platform_dependent(y, cpu=branch, default=lambda y: y)
    return lax.bitcast_convert_type(y, shard.dtype)


def as_bits_but_on_tpu(move, shard, axes):
    """Apply `move` to integers like `as_bits`, except on a TPU, where a type conversion takes
    two passes over memory. There `move` gets the floats, and must preserve every bit."""
    return lax.platform_dependent(shard, tpu=move, default=lambda shard: as_bits(move, shard, axes))
