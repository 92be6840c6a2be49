"""Programs of arguments and results whose extents do not divide: prints what is wrong as JSON.

python tests/padded_process.py cases cheapest
python tests/padded_process.py faults
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

from cpu_devices import flags

os.environ["XLA_FLAGS"] = flags(8)
os.environ["JAX_PLATFORMS"] = "cpu"

import emitted
import jax
import jax.numpy as jnp
import models
import numpy as np
import pytest
from jax.sharding import AxisType
from places import ROOT

import shardwright as sw
from shardwright.codegen.operations.verify import program_values

ROWS, WHOLE = '[{"d"}, {}]', "[{}, {}]"


class State(NamedTuple):
    """Weights of a vocabulary that does not divide, and their moments."""

    weights: dict[str, Any]
    moments: dict[str, Any]


def shape(*extents: int, dtype: Any = jnp.float32) -> Any:
    return jax.ShapeDtypeStruct(extents, dtype)


def loss(weights: Any, ids: Any) -> Any:
    hidden = jnp.tanh(weights["embed"][ids])
    return -jax.nn.log_softmax(hidden @ weights["head"])[:, 1:].mean()


def step(state: State, ids: Any) -> tuple[State, Any]:
    value, slopes = jax.value_and_grad(loss)(state.weights, ids)
    moments = jax.tree.map(lambda m, g: 0.9 * m + g, state.moments, slopes)
    weights = jax.tree.map(lambda w, m: w - 0.1 * m, state.weights, moments)
    return State(weights, moments), value


def steps(state: State, batches: Any) -> tuple[State, Any]:
    return jax.lax.scan(step, state, batches)


def several(x: Any, n: Any, b: Any, c: Any) -> Any:
    return x * 2, n.max(), jnp.where(b, n, -n), x, x, c.conj(), b.any()


def pad(pad: Any, unpad: Any) -> Any:
    """A function, and arguments, of the names that a module has."""
    return pad.sum() + unpad, unpad[:5]


def table(x: Any, ids: Any) -> Any:
    """Rows of a table by index, of which some are in the padding."""
    x, rows = jnp.asarray(x) * 2, jnp.asarray(ids) * 18 - 3  # -3, 15, 33, 51
    modes = ("clip", "fill", "wrap")
    found = [jnp.take(x, rows, axis=0, mode=mode, fill_value=0.5) for mode in modes]
    added = [x.at[rows].add(found[0], mode=mode) for mode in ("clip", "fill")]
    return *found, x[rows], *added


def repeated(x: Any, y: Any) -> Any:
    """A loop of unknown length that carries x, and a branch."""
    carry = jax.lax.while_loop(lambda c: c[1] < 3, lambda c: (jnp.cos(c[0]), c[1] + 1), (x, 0))
    return carry, jax.lax.cond(y[0] > 0, lambda x: x.sum(0), lambda x: x[1] + y[0], x)


TREE = {"embed": shape(50, 6), "head": shape(6, 50)}
STATE = State(TREE, TREE)
SPLIT = {"embed": ROWS, "head": '[{}, {"d"}]'}
SIDE = State(SPLIT, SPLIT)
IDS = shape(9, dtype=jnp.int32)
Case = tuple[Any, tuple[Any, ...], Any, Any, sw.Mesh]
EIGHT = sw.Mesh({"d": 8})
CASES: dict[str, Case] = {
    "a step": (step, (STATE, IDS), (SIDE, '[{"d"}]'), (SIDE, None), EIGHT),
    "a scan": (
        *(steps, (STATE, shape(3, 9, dtype=jnp.int32)), (SIDE, '[{}, {"d"}]'), (SIDE, None)),
        sw.Mesh({"d": 4, "t": 2}),
    ),
    "dtypes": (
        several,
        (
            *(shape(7, 3, dtype=jnp.bfloat16), shape(7, 3, dtype=jnp.int32)),
            *(shape(7, 3, dtype=bool), shape(3, 7, dtype=jnp.complex64)),
        ),
        (ROWS, ROWS, ROWS, '[{"d"}, {"e"}]'),
        ('[{"d"}, {"e"}]', "[]", ROWS, ROWS, '[{"e"}, {"d"}]', '[{"e"}, {"d"}]', "[]"),
        sw.Mesh({"d": 4, "e": 2}),
    ),
    "names": (pad, (shape(30), shape(7)), ('[{"d"}]', None), ('[{"d"}]', '[{"d"}]'), EIGHT),
    "fewer rows than devices": (
        *(lambda x: (jnp.cumsum(x, 0), x.mean(0)), (shape(3, 5),), (ROWS,), (ROWS, '[{"d"}]')),
        EIGHT,
    ),
    "rows of a table": (
        *(table, (shape(50, 4), shape(16, dtype=jnp.int32)), (ROWS, "[{}]")),
        *((WHOLE, WHOLE, WHOLE, WHOLE, ROWS, ROWS), EIGHT),
    ),
    "a while loop": (
        *(repeated, (shape(30, 4), shape(2)), (ROWS, None), ((ROWS, None), None), EIGHT),
    ),
    "sub-axes": (
        *(lambda x, y: (x @ y, jnp.sort(x, 0)), (shape(10, 6), shape(6, 9))),
        *(('[{"x":(1)2, "y"}, {}]', '[{}, {"x":(2)2}]'), ('[{"y"}, {"x"}]', '[{"x":(2)2}, {}]')),
        sw.Mesh({"x": 4, "y": 2}),
    ),
}


def partitioned(name: str, mode: str) -> sw.Partitioned:
    fn, avals, inputs, outputs, mesh = CASES[name]
    sides = {"in_shardings": inputs, "out_shardings": outputs}
    return sw.partition(fn, *avals, mesh=mesh, mode=mode, **sides)


def values(name: str, mode: str) -> str:
    """What is wrong with the results of a module; its own padding is that of `Partitioned`."""
    fn, avals, _, _, mesh = CASES[name]
    program, of_jax = partitioned(name, mode), models.jax_mesh(**mesh.sizes)
    said = emitted.fault(fn, avals, program, of_jax)
    module, given = emitted.module_of(program), program_values.arguments(avals)
    sides = [each(*given, mesh=of_jax) for each in (module["pad"], program.pad)]
    results = module["program"](of_jax)(*sides[0])
    for one, other in zip(*map(jax.tree.leaves, sides), strict=True):
        said = said or _differ(one, other)
    for one, other in zip(
        *(jax.tree.leaves(each(results)) for each in (module["unpad"], program.unpad)), strict=True
    ):
        said = said or _differ(one, other)
    for leaf, spec in zip(
        jax.tree.leaves(sides[0]), jax.tree.leaves(module["IN_SHARDINGS"]), strict=True
    ):
        is_placed = leaf.sharding.spec == spec and len(leaf.sharding.device_set) == 8
        said = said or ("" if is_placed else f"{leaf.sharding}, not {spec}")
    return said


def _differ(one: Any, other: Any) -> str:
    is_placed = one.sharding.is_equivalent_to(other.sharding, one.ndim)
    same = one.shape == other.shape and bool(jnp.array_equal(one, other))
    return "" if is_placed and same else f"{one.sharding} {one.shape}, {other.sharding}"


def donated() -> str:
    """The loop of docs/programs.md: the state of a step is donated, step after step, and never
    unpadded between them."""
    fn, avals, *_ = CASES["a step"]
    page = (ROOT / "docs" / "programs.md").read_text()
    loop = page[: page.index("saved = ")].rpartition("```python\n")[2] + "saved = "
    loop += page.partition("saved = ")[2].partition("```")[0]
    program = partitioned("a step", "cheapest")
    state, ids = program_values.arguments(avals)
    ids = np.asarray(ids, "int64")
    names = {"jax": jax, "state": state, "batches": [ids] * 3, "mesh": models.jax_mesh(d=8)}
    names["module"] = SimpleNamespace(**emitted.module_of(program))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # JAX warns if it cannot use a donated array
        exec(loop, names)
    for _ in range(3):
        state, _ = fn(state, ids)
    if not all(leaf.is_deleted() for leaf in jax.tree.leaves(names["padded"])):
        return "not donated"
    others = program.unpad(names["state"], like=names["shapes"])
    for made in (names["saved"], others):
        pairs = [*zip(*map(jax.tree.leaves, (made, state)), strict=True)]
        if not all(np.allclose(*pair, atol=1e-5) for pair in pairs):
            return "other values"
    return ""


def explicit() -> str:
    """On a mesh of Explicit axes, from which `unpad` takes the axes first. One of the results is
    unpadded alone."""
    fn, avals, *_ = CASES["names"]
    program = partitioned("names", "cheapest")
    module = emitted.module_of(program)
    mesh = jax.make_mesh((8,), ("d",), axis_types=(AxisType.Explicit,))
    given = program_values.arguments(avals)
    results = module["program"](mesh)(*module["pad"](*given, mesh=mesh))
    exact = fn(*given)
    with pytest.raises(Exception, match=r"Use `\.at\[\.\.\.\]"):  # a ShardingTypeError
        results[1][:5]
    alone = [each(results[1], like=exact[1]) for each in (module["unpad"], program.unpad)]
    pairs = [*zip(module["unpad"](results), exact, strict=True), (alone[0], exact[1]), alone]
    return "" if all(np.allclose(*pair, atol=1e-5) for pair in pairs) else "other values"


def on_the_host() -> str:
    """NumPy arrays stay there, with the types that JAX gives them."""
    program = partitioned("names", "cheapest")
    module = emitted.module_of(program)
    given = [np.ones(30), np.ones(7)]
    padded = module["pad"](*given)
    for one, other in zip(padded, program.pad(*given), strict=True):
        assert one.dtype == other.dtype == "float32"
        assert np.array_equal(one, other)
    whole = module["unpad"](jax.device_get(module["program"](models.jax_mesh(d=8))(*padded)))
    kinds = {type(each) for each in (*padded, *whole)}
    return "" if kinds == {np.ndarray} else str(kinds)


def slopes() -> str:
    """The gradient that JAX makes of a module is zero in the padding of its arguments, also where
    the padding is NaN. `unpad` cuts it to the shape of the argument."""
    aval = shape(30, 4)
    program = sw.partition(
        *(lambda x: jnp.log(jnp.abs(x) + 1).mean(), aval), mesh=EIGHT, in_shardings=(ROWS,)
    )
    module = emitted.module_of(program)
    (x,) = module["pad"](*program_values.arguments((aval,)))
    made = jax.jit(jax.grad(module["program"](models.jax_mesh(d=8))))(x.at[30:].set(jnp.nan))
    cut = module["unpad"]({"x": made}, like={"x": aval})["x"]
    good = np.array_equal(cut, made[:30]) and made[:30].all() and not made[30:].any()
    return "" if good else "a gradient of padding"


def messages() -> dict[str, str]:
    """What pad, unpad and the program say of arguments that do not fit."""
    program = partitioned("a step", "cheapest")
    module = emitted.module_of(program)
    state, ids = program_values.arguments(CASES["a step"][1])
    run = module["program"](models.jax_mesh(d=8))
    padded = module["pad"](state, ids)
    other = state._replace(weights={"embed": ids, "head": 3})
    calls: dict[str, Callable[[], Any]] = {
        "program": lambda: run(state, ids),
        "pad": lambda: module["pad"](other, ids),
        "pad of few": lambda: module["pad"](ids),
        "pad of a wrong tree": lambda: module["pad"](other._replace(weights={"embeds": 1}), ids),
        "pad of another class": lambda: module["pad"](tuple(state), ids),
        "pad of no array": lambda: module["pad"](state, "ids"),
        "pad twice": lambda: _same(module["pad"](*padded), program.pad(*padded), padded),
        "pad of a number": lambda: module["pad"](state, 3),
        "pad on a mesh": lambda: module["pad"](state, ids, mesh=models.jax_mesh(e=8)),
        "unpad": lambda: module["unpad"]((state, jnp.float32(0))),
        "unpad of few": lambda: module["unpad"](state.weights),
        "unpad of a smaller array": lambda: module["unpad"](state.weights, like=padded[0].weights),
        "unpad of another tree": lambda: module["unpad"](ids, like=[ids]),
        "Partitioned.pad": lambda: program.pad(other, ids),
        "Partitioned.pad of few": lambda: program.pad(ids),
        "Partitioned.pad on a mesh": lambda: program.pad(state, ids, mesh=8),
        "Partitioned.pad of no array": lambda: program.pad(state, "ids"),
        "Partitioned.unpad of a smaller array": lambda: program.unpad(ids, like=padded[1]),
        "Partitioned.unpad of another tree": lambda: program.unpad(ids, like=[ids]),
        "Partitioned.unpad": lambda: program.unpad((state, jnp.float32(0))),
    }
    return {name: _said(call) for name, call in calls.items()}


def _same(*trees: Any) -> None:
    """Whether trees have the very same arrays."""
    for leaves in zip(*map(jax.tree.leaves, trees), strict=True):
        if len(set(map(id, leaves))) > 1:
            raise ValueError("other arrays")


def _said(call: Callable[[], Any]) -> str:
    try:
        call()
    except ValueError as error:  # an InputError is one
        return str(error)
    return ""


def scored(x: Any, w: Any) -> Any:
    y = jnp.cos(x @ w)
    return y, y.mean(), x.sum()


FAULTS: dict[str, tuple[str, str]] = {
    "a pad read": (r"jnp\.where\(.*, (x_rows|x_rows_shifted), .*\)(?=  #|$)", r"\1"),
    "a mask left out": (r"jnp\.where\(.*, y, 0\.0\)", "y"),
    "a mean over the padded count": (r"/ 240\.0", "/ 256.0"),
    "padding of a result": (r"jnp\.where\(.*, (y_padded_shifted), .*\)$", r"\1"),
}


INDICES = {
    "an index beyond the last row": r"jnp\.minimum\((.+), 49\)",
    "an index of the padding": r"jnp\.where\(\w+_end, (\w+), 56\)",
}


def faults() -> dict[str, str]:
    """What is said of a module with a planted fault."""
    avals = (shape(30, 4), shape(4, 8))
    sides = {"in_shardings": (ROWS, WHOLE), "out_shardings": (ROWS, "[]", "[]")}
    program = sw.partition(scored, *avals, mesh=sw.Mesh({"d": 8}), mode="as_shardy", **sides)
    mesh = models.jax_mesh(d=8)
    found = {"none": emitted.fault(scored, avals, program, mesh)}
    for name, (pattern, to) in FAULTS.items():
        found[name] = emitted.fault(scored, avals, program, mesh, emitted.every(pattern, to))
    given = table, CASES["rows of a table"][1], partitioned("rows of a table", "as_shardy"), mesh
    for name, pattern in INDICES.items():
        found[name] = emitted.fault(*given, emitted.every(pattern, r"\1"))
    return found


def cases(mode: str) -> dict[str, str]:
    found = {name: values(name, mode) for name in CASES}
    others = (donated, explicit, on_the_host, slopes)
    return found | {each.__name__: each() for each in others}


RUNS: dict[str, Any] = {"cases": cases, "faults": faults, "messages": messages}

if __name__ == "__main__":
    print(json.dumps(RUNS[sys.argv[1]](*sys.argv[2:])))
