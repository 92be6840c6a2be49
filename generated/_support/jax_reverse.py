"""The derivative of a reshard in reverse mode. The reverse reshard, in the sibling module, moves
the cotangent of the result back."""

import jax
from jax.sharding import AxisType

from .beside import host_beside
from .jax_meshes import apart


def moved_back(host, y, x, source, target, interpret, collective_id):
    """Return the cotangent of an argument `x` of a reshard, given the cotangent `y` of its
    result."""
    collective_id = None if collective_id is None else collective_id ^ 1
    x_bar = host.operation.reverse.operation.bind(y, target, source, interpret, collective_id)
    if AxisType.Explicit in x.aval.sharding.mesh.axis_types:
        with apart(x_bar):
            x_bar = jax.sharding.reshard(x_bar, x.aval.sharding)
    return x_bar


def refuse_extremum():
    """Raise NotImplementedError for a derivative of terms reduced by max or min."""
    raise NotImplementedError(
        "a partial maximum or minimum has no derivative where values are equal: "
        "stop_gradient(x) before reshard, or use a function of your own that has one"
    )


def reverse_of(name, derivative, host):
    """Return the host of module `derivative`, the reverse of the reshard `host` of module `name`.
    Raises ImportError if that module is missing or belongs to a different reshard."""
    found, beside = host_beside(name, derivative, "reshard needs the reverse reshard")
    alike = _alike(found.target, host.source) and _alike(found.source, host.target)
    if not alike or (found.shape, found.dtype) != (host.shape, host.dtype):
        raise ImportError(f"{beside} is not the reverse of this reshard: emit both again")
    return found


def _alike(one, other):
    """Return whether every device holds the same data on both sides."""
    if tuple(one.ids) != tuple(other.ids) or one.padded != other.padded:
        return False
    return all(tuple(one.box(n)) == tuple(other.box(n)) for n in range(len(one.ids)))
