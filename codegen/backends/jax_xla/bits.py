"""Which modules move small floats as they are on a TPU, and not as integers of their width.

XLA may compute with elements that a program only moves, and then NaNs lose their payload. Integers
keep every bit, but on a TPU each change of type is a pass over a shard. In the HLO of programs
compiled for v5e and v6e (jax 0.10.2, libtpu 0.0.42), these keep floats as they are, whatever the
dtype: copies in another layout, slices, dynamic slices, `all_to_all`, `all_gather` and `ppermute`
of arrays of two dimensions or more that are whole tiles of memory, and `concatenate` of such
arrays. These do not:

    concatenate within a tile  a maximum of padded arrays, in float32
    all_gather within a tile   of vectors: a sum of arrays that are zero elsewhere
    all_to_all within a tile   a sum along a dimension of 1
    where, pad                 a choice, which may be fused with either

`tests/backends/jax_xla/test_as_floats.py` compiles modules and reads their HLO.
"""

from __future__ import annotations

from shardwright.codegen.backends.jax_xla.fetches import Fetches
from shardwright.codegen.backends.jax_xla.groups import Groups
from shardwright.codegen.backends.jax_xla.transport import How, Transport
from shardwright.ir.dtypes import DTYPES, is_floating
from shardwright.ir.reshard import Reshard

LANES = 128
ROWS = {1: 32, 2: 8}  # of a tile of memory, by bytes of an element
MOVERS = {
    *("Cut", "Exchange", "along", "among_groups", "fetched", "fetches", "groups_along"),
    *("number_of", "permuted", "sends_along"),
}
"""Functions of support that only cut and move elements, or name who moves them."""


def moves_floats(reshard: Reshard, how: How, transport: Transport, short: tuple[int, ...]) -> bool:
    """Return whether a module of small floats moves them as they are on a TPU; `short`: the
    dimensions along which it writes padding."""
    size = DTYPES[reshard.dtype]
    if not is_floating(reshard.dtype) or size not in ROWS or reshard.adds or short:
        return False
    used = {name for names in transport.calls.values() for name in names}
    if not (transport.libraries <= {"lax"} and used <= MOVERS):
        return False
    moved = [side.local_shape(reshard.shape) for side in (reshard.source, reshard.target)]
    moved += [how.join.window] if isinstance(how, Fetches | Groups) else []
    return all(
        len(shape) > 1 and shape[-2] % ROWS[size] == 0 and shape[-1] % LANES == 0 for shape in moved
    )
