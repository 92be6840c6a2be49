"""Input and algebra: meshes, shardings, reshards, and the integer algebra of their layouts.

Meshes and shardings are written as in Shardy. `text/grammar.lark` has the grammar; the meaning is:

    mesh       <["x"=2, "y"=3]>               six devices viewed as 2 x 3, ids 0 to 5
               <["x"=2], device_ids=[1, 0]>   the same view, devices reordered
               <[], device_ids=[3]>           maximal: one device
    axis       "x"                            a full axis
               "x":(m)k                       reshape "x" to [m, k, n/(m*k)], take the middle
    dimension  {"x", "y"}                     split along "x", then along "y": major to minor
               {"x", ?}p2                     open to further splits, of priority 2
    sharding   [{"x"}, {}], replicated={"y":(1)2}, unreduced={"z"}      or unreduced=max{"z"}

Nothing here imports a backend, a template engine, jax or torch.
"""

from shardwright.ir.axes import AxisRef
from shardwright.ir.dtypes import DTYPES
from shardwright.ir.errors import InputError, InternalError
from shardwright.ir.given import mesh_of, sharding_on
from shardwright.ir.mesh import Digit, Mesh, Readers, read_by
from shardwright.ir.reshard import SPLITS, Reshard
from shardwright.ir.sharding import DimSharding, Sharding
from shardwright.ir.text.parse import parse_mesh, parse_meshes, parse_shape, parse_sharding

__all__ = [
    "DTYPES",
    "SPLITS",
    "AxisRef",
    "Digit",
    "DimSharding",
    "InputError",
    "InternalError",
    "Mesh",
    "Reshard",
    "Sharding",
    "parse_mesh",
    "parse_meshes",
    "parse_shape",
    "parse_sharding",
]

read_by(Readers(parse_mesh, mesh_of, sharding_on))
