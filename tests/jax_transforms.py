"""Takes emitted JAX modules through JAX's transformations, on forced CPU devices.

Arguments: folders with the module of a reshard each, and its backward. Everything is compared bit
by bit with what the module does to one array outside of all; prints the names of what differs.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh

from shardwright.codegen.checks.jax_devices import to_bits, to_jax
from shardwright.codegen.checks.load import load
from shardwright.codegen.checks.oracle import definition as oracle

COUNT = 3


def mesh_of(module: Any, side: str, kind: AxisType) -> Mesh:
    ids = getattr(module, f"{side}_IDS")
    ranks = sorted({*module.SOURCE_IDS, *module.TARGET_IDS})
    names, sizes = zip(*getattr(module, f"{side}_AXES"), strict=True)
    devices = np.array([jax.devices()[ranks.index(each)] for each in ids])
    return Mesh(devices.reshape(sizes), names, axis_types=(kind,) * len(names))


def ways(module: Any, kind: AxisType, within: bool) -> Iterator[tuple[str, bool]]:
    """The name of each transformation and whether it does what the plain function does."""
    source, target = mesh_of(module, "SOURCE", kind), mesh_of(module, "TARGET", kind)
    bits = oracle.random_bits((COUNT, 2, *module.SHAPE), module.DTYPE, 7)
    tensors = to_jax(bits, module.DTYPE)
    one_order = tuple(module.SOURCE_IDS) == tuple(module.TARGET_IDS)

    def moved(x: Any) -> Any:
        return module.reshard(x, source, target_mesh=target, interpret=True)

    def whole(tensor: Any) -> Any:
        x = jax.device_put(module.pad(tensor), module.source_sharding(source))
        return module.unpad(moved(x))

    with jax.set_mesh(source) if within else contextlib.nullcontext():
        x = jax.device_put(module.pad(tensors[0, 0]), module.source_sharding(source))
        y = moved(x)
        yield "unpad", same(module.unpad(y), bits[0, 0])
        yield "pad and unpad", same(whole(tensors[1, 1]), bits[1, 1])
        padded = jax.vmap(module.pad)(tensors[:, 0])
        yield "vmap of pad", same(jax.vmap(lambda x: x)(padded)[0], to_bits(x))
        yield "vmap", same(jax.vmap(module.unpad)(jax.vmap(moved)(padded)), bits[:, 0])
        twice = jax.vmap(jax.vmap(module.pad))(tensors)
        axis = int(one_order)  # JAX moves no axis of what is elsewhere
        nested = jax.vmap(jax.vmap(moved), in_axes=axis, out_axes=axis)(twice)
        yield "vmap of vmap", same(jax.vmap(jax.vmap(module.unpad))(nested), bits)
        if one_order and (within or kind == AxisType.Auto):  # else JAX wants the mesh to be set
            inside = jax.jit(jax.vmap(moved))(padded)
            yield "jit of vmap", same(jax.vmap(module.unpad)(inside), bits[:, 0])
            yield "vmap of jit", same(jax.vmap(jax.jit(moved))(padded), to_bits(inside))
        if has_gradient(module):
            yield from gradients(module, moved, x, y, padded)
        if has_gradient(module) and (within or kind == AxisType.Auto) and one_order:
            yield from of_padding(module, y)  # elsewhere JAX has no seed for a gradient


def gradients(
    module: Any, moved: Callable[[Any], Any], x: Any, y: Any, many: Any
) -> Iterator[tuple[str, bool]]:
    """That of the module, and of many at once."""
    (back,) = jax.vjp(moved, x)[1](y)
    yield "gradient", same(jnp.asarray(inner(module, back)), to_bits(inner(module, x)))
    _, pull = jax.vjp(jax.vmap(moved), many)
    (all_back,) = pull(np.stack([np.asarray(y)] * COUNT))
    # Where axes are Explicit JAX itself moves the cotangent, whose NaNs XLA on CPU may change.
    known = ~np.isnan(np.asarray(back, np.float32))
    one = np.asarray(all_back)[1]
    yield (
        "gradient of vmap",
        same(one[known], to_bits(back)[known])
        and bool(np.isnan(one[~known].astype(np.float32)).all()),
    )


def of_padding(module: Any, y: Any) -> Iterator[tuple[str, bool]]:
    """The gradients of sums: ones."""
    tensor = jnp.ones(module.SHAPE, module.DTYPE)
    for name, grad in (
        ("pad", jax.grad(lambda t: module.pad(t).astype(jnp.float32).sum())(tensor)),
        ("unpad", inner(module, None, y)),
    ):
        yield f"gradient of {name}", bool(np.all(np.asarray(grad, np.float32) == 1))


def inner(module: Any, x: Any, y: Any = None) -> Any:
    """What is not padding: of an array like the source; of the gradient of `unpad` at y."""
    if y is not None:
        grad = jax.grad(lambda y: module.unpad(y).astype(jnp.float32).sum())(y)
        return module.unpad(grad)
    template = np.ones(module.SHAPE, bool)
    pads = module.PADDED_SOURCE_SHAPE != module.SHAPE
    kept = np.asarray(module._HOST.paddings[0].added(template)) if pads else template
    return np.asarray(x)[kept]


def has_gradient(module: Any) -> bool:
    return module._HOST.operation.derivative not in ("", "extremum")


def same(got: Any, bits: Any) -> bool:
    return bool(np.array_equal(to_bits(got), bits))


def main(folders: list[str]) -> None:
    kinds = itertools.product((AxisType.Auto, AxisType.Explicit), (False, True))
    for (kind, within), folder in itertools.product(kinds, folders):
        for path in sorted(Path(folder).glob("*.py")):
            if path.name not in ("pallas_tpu.py", "jax_xla.py"):
                continue
            # Interpreting is slow; both have one host side, and the fuzz mixes what is left out.
            if path.name == "pallas_tpu.py" and within != (kind == AxisType.Explicit):
                continue
            module: Any = load(path)
            jax.config.update("jax_enable_x64", np.dtype(jnp.dtype(module.DTYPE)).itemsize == 8)
            where = f"{path.parent.name} {path.stem} {kind.name}{' set' if within else ''}"
            try:
                for name, right in ways(module, kind, within):
                    if not right:
                        print(f"{where}: {name}", flush=True)
            except Exception as error:
                said = str(error).replace("\n", " ")[:300]
                print(f"{where}: {type(error).__name__}: {said}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
