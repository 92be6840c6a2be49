"""`sw.reshard(x, target)`: plan, emit and run a reshard in one call."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwright.codegen.call.trees import leaves_of, tree_of
from shardwright.ir.errors import InputError, in_a_line, known_arguments
from shardwright.ir.foreign import DTENSOR, JAX_ARRAY, JAX_SHARDING, PARTITION_SPEC, is_a

_OF_JAX = JAX_SHARDING, PARTITION_SPEC


@known_arguments
def reshard(x: Any, target: Any, *, source: Any = None) -> Any:
    """Return `x` with a different sharding, moved by a module emitted once for this case.

    `x`: a `jax.Array`, inside or outside a jit, or a numpy array, with a JAX sharding as `target`,
    or a PartitionSpec on the current mesh or the array's own; or a DTensor, with placements, or a
    pair of a DeviceMesh and placements. `source`: the sharding of a traced array, as a
    NamedSharding or a PartitionSpec on the target's mesh. It is needed unless all axes of the
    array's mesh are Explicit, because only then does its type include the sharding. A traced array
    is first constrained to this sharding.

    The first call for a shape, dtype and pair of shardings makes a plan, emits the module with its
    gradient into the folder `SHARDWRIGHT_CACHE` (by default `shardwright` in the user's cache
    folder) and compiles it; later calls only call the module. If XLA's own reshard is predicted to
    be as fast, or torch's moves as few bytes, it is used instead. The choice, its reason, and the
    seconds of the first call are written to the log `shardwright`, level INFO. JAX or torch handles
    cases that modules do not support, such as complex numbers.

    `x` may also be a tree of arrays or of DTensors: dicts, lists and tuples, in JAX any pytree.
    `target` is then a single target for all leaves, or a tree with a target for each leaf or
    branch. Leaves that move between devices share one exchange, as in `sw.sync`; arrays traced by a
    jit, and DTensors that need a gradient, are resharded one at a time.

    Raises InputError for other arrays and shardings, for shardings on devices other than a traced
    program's, and for a folder that cannot be written.
    """
    if is_a(x, JAX_ARRAY) or (isinstance(x, np.ndarray) and is_a(target, *_OF_JAX)):
        from shardwright.codegen.call.arrays import reshard_array

        return reshard_array(x, target, source)
    if is_a(x, DTENSOR):
        from shardwright.codegen.call.dtensors import reshard_dtensor

        if source is not None:
            raise InputError(
                "a DTensor already has placements, so it takes no source",
                argument="source",
                got=in_a_line(source),
                expected="sw.reshard(x, target)",
            )
        return reshard_dtensor(x, target)
    if (tree := tree_of(x)) is not None:
        leaves = leaves_of(tree, target, source)
        if tree.of_jax:
            from shardwright.codegen.call.jax_trees import reshard_arrays

            return tree.form.unflatten(reshard_arrays(leaves))
        from shardwright.codegen.call.torch_trees import reshard_dtensors

        return tree.form.unflatten(reshard_dtensors(leaves))
    raise InputError(
        "`x` must be a jax.Array or a DTensor",
        argument="x",
        got=in_a_line(x),
        expected=_instead(x),
    )


def _instead(x: Any) -> str:
    if type(x).__module__.split(".")[0] == "torch":
        return "a DTensor: distribute_tensor(x, device_mesh, placements)"
    return "a jax.Array: jax.device_put(x, sharding)"
