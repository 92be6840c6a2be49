"""Padding of the arguments and results of an emitted program, whose shards must be equal."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shardwright.codegen.ops.layout import LocalLayout
from shardwright.codegen.partition.local.axes import CutAxes
from shardwright.codegen.partition.local.communications import notation
from shardwright.codegen.trace.avals import dtype_of
from shardwright.ir.errors import InputError, in_a_line
from shardwright.ir.program import Value

if TYPE_CHECKING:
    from shardwright.codegen.partition.partitioned import Partitioned


def pad(program: Partitioned, arguments: tuple[Any, ...], mesh: Any) -> tuple[Any, ...]:
    """Pad arguments with zeros at the ends that the emitted program's arguments have padded.
    Arguments that have their padding stay as they are. Place them on a jax mesh unless it is None.

    Raises InputError for arguments that are not like the function's.
    """
    import jax

    local = program.local
    given = [program.given.values[v] for v in program.given.body.arguments]
    wanted = [local.of(v) for v in local.body.arguments]
    converted = jax.tree.map(_as_in_jit, arguments)
    leaves = _leaves("arguments", converted, program.inputs, given, wanted)
    padded = map(_padded, leaves, (value.shape for value in wanted))
    if mesh is not None:
        layouts = (local.values[v].layout for v in local.body.arguments)
        padded = map(jax.device_put, padded, _placed(local.axes, mesh, layouts))
    made: tuple[Any, ...] = program.inputs(tuple(padded))
    return made


def _placed(axes: CutAxes, mesh: Any, layouts: Iterable[LocalLayout]) -> Iterator[Any]:
    """Yield each layout as a sharding on a jax mesh. Raises InputError for a mesh of other axes."""
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    if not isinstance(mesh, Mesh) or tuple(mesh.shape.items()) != axes.mesh.axes:
        raise InputError(
            "the mesh must be a jax mesh with the axes of the program's mesh",
            argument="mesh",
            got=in_a_line(getattr(mesh, "shape", mesh)),
            expected=f"a jax.sharding.Mesh with the axes {dict(axes.mesh.axes)}",
        )
    if not axes.whole:
        names, sizes = zip(*axes.pieces, strict=True)
        mesh = Mesh(mesh.devices.reshape(sizes), names)
    for layout in layouts:
        yield NamedSharding(mesh, PartitionSpec(*layout.dims))


def unpad(program: Partitioned, results: Any, like: Any) -> Any:
    """Remove the padding of results of the emitted program or, if `like` is given, of any tree,
    whose arrays get the shapes in the tree `like`.

    Raises InputError for results that are not like the emitted program's, or not like `like`.
    """
    if like is not None:
        return _like(results, like)
    local = program.local
    padded = [local.of(v) for v in local.body.results]
    leaves = _leaves("results", results, program.outputs, padded, padded)
    shapes = (program.given.values[v].shape for v in program.given.body.results)
    return program.outputs(tuple(map(_unpadded, leaves, shapes)))


def _like(tree: Any, like: Any) -> Any:
    import jax

    _check_tree("results", tree, like, "`like`")
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    made = []
    for (path, leaf), known in zip(leaves, jax.tree.leaves(like), strict=True):
        own, shape = np.shape(leaf), np.shape(known)
        if len(own) != len(shape) or any(map(operator.lt, own, shape)):
            raise InputError(
                "the results must be as large as in `like`, or larger",
                argument="results" + jax.tree_util.keystr(path),
                got=str(own),
                expected=str(shape),
            )
        made.append(_unpadded(leaf, shape))
    return jax.tree.unflatten(structure, made)


def _check_tree(name: str, tree: Any, known: Any, whose: str) -> None:
    import jax

    if jax.tree.structure(tree) != jax.tree.structure(known):
        raise InputError(
            f"the {name} must be a tree like {whose}",
            argument=name,
            got=str(jax.tree.structure(tree)),
            expected=str(jax.tree.structure(known)),
        )


def _leaves(
    name: str,
    tree: Any,
    made: Callable[[tuple[Any, ...]], Any],
    wanted: Sequence[Value],
    padded: Sequence[Value],
) -> Iterator[Any]:
    """Yield the arrays of a tree, which must be like the tree that `made` makes of `wanted`. Each
    has the type in `wanted` or in `padded`."""
    import jax

    _check_tree(name, tree, made(tuple(range(len(wanted)))), "the function's")
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    for (path, x), value, longer in zip(leaves, wanted, padded, strict=True):
        dtype, kind = getattr(x, "dtype", None), f"a value of type {type(x).__name__}"
        own = kind if dtype is None else _type(dtype_of(dtype), x.shape)
        types = dict.fromkeys(_type(each.dtype, each.shape) for each in (value, longer))
        if own not in types:
            raise InputError(
                f"the {name} must have the types of the function's",
                argument=name + jax.tree_util.keystr(path),
                got=own,
                expected=" or (padded) ".join(types),
            )
        yield x


def _as_in_jit(x: Any) -> Any:
    """Convert Python numbers and NumPy arrays to the types that `jax.jit` gives them."""
    import jax
    import jax.numpy as jnp

    if isinstance(x, np.ndarray | np.generic):
        return np.asarray(x, jax.dtypes.canonicalize_dtype(x.dtype))
    return jnp.asarray(x, jnp.result_type(x)) if isinstance(x, int | float | complex) else x


def _type(dtype: str, shape: tuple[int, ...]) -> str:
    return notation(dtype, shape, LocalLayout(((),) * len(shape)))


def _padded(x: Any, shape: tuple[int, ...]) -> Any:
    """Pad an array with zeros to a shape, at the end of each dimension. NumPy arrays stay on
    the host."""
    if x.shape == shape:
        return x
    import jax.numpy as jnp

    ends = [(0, to - own) for own, to in zip(x.shape, shape, strict=True)]
    return np.pad(x, ends) if isinstance(x, np.ndarray) else jnp.pad(x, ends)


def _unpadded(x: Any, shape: tuple[int, ...]) -> Any:
    if np.shape(x) == shape:
        return x
    import jax

    sharding = jax.typeof(x).sharding
    if jax.sharding.AxisType.Explicit in sharding.mesh.axis_types:
        whole = jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec())
        x = jax.sharding.reshard(x, whole)
    return x[tuple(map(slice, shape))]
