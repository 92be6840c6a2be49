"""What a program's module is written without, and how often its page says that something moves."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import json
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import shardwright as sw

CYCLE = (1, 2, 0)


def shaped(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def text(fn: Any, *avals: Any, mesh: sw.Mesh, **sides: Any) -> str:
    return sw.emit(sw.partition(fn, *avals, mesh=mesh, **sides)).files("step")["jax_spmd.py"]


def test_transpositions_that_turn_back() -> None:
    """After two or more steps; those that give another order stay."""

    def step(x: Any) -> Any:
        y = jnp.cos(x)
        two = y.transpose(CYCLE).transpose(CYCLE)
        return two * 2, two.transpose(CYCLE) + 1, (y + 2).transpose(CYCLE).transpose((2, 0, 1)) - 3

    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    made = text(step, jax.ShapeDtypeStruct(x.shape, x.dtype), mesh=sw.Mesh({"d": 1}))
    assert made.count("transpose(") == 2
    scope: dict[str, Any] = {}
    exec(made.replace("from __future__ import annotations\n", ""), scope)
    found = scope["program"](jax.make_mesh((1,), ("d",)))(x)
    for one, other in zip(found, jax.jit(step)(x), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_part_of_one_row_starts_at_the_devices_index() -> None:
    aval = jax.ShapeDtypeStruct((4, 8), jnp.float32)
    made = text(jnp.sin, aval, mesh=sw.Mesh({"d": 4}), in_shardings=(P(),), out_shardings=P("d"))
    assert 'lax.dynamic_slice_in_dim(x, lax.axis_index("d"), 1, axis=0)' in made


def test_equal_functions_are_one() -> None:
    """Which two lists of calls call; and their loops share an index."""

    def step(m: Any, v: Any, by: Any) -> Any:
        made = []
        for tree, c in ((m, by[0]), (v, by[1])):
            mean = jax.tree.map(lambda a: 0.9 * a + 0.1, tree)
            made.append(jax.tree.map(lambda a, c=c: jnp.sqrt(a / c), mean))
            made.append(by * 2.0 if tree is m else by + 1.0)
        return made

    shapes = {"a": (8, 4), "b": (8, 6), "c": (8, 2, 2), "d": (8,)}
    leaves = {key: jax.ShapeDtypeStruct(shape, jnp.float32) for key, shape in shapes.items()}
    tree = [leaves] * 6
    by = jax.ShapeDtypeStruct((2,), jnp.float32)
    made = text(step, tree, tree, by, mesh=sw.Mesh({"d": 2}))
    assert made.count("\ndef ") == 6  # with step, program and two of the template
    assert made.count("for i in range(6)") == 2


def test_the_page_counts_every_run_of_a_communication() -> None:
    def step(layers: Any, x: Any) -> Any:
        def layer(x: Any, pair: Any) -> Any:
            return jnp.tanh(jnp.cos(x @ pair[0]) @ pair[1]), None

        return jax.lax.scan(layer, x, layers)[0]

    pair = [jax.ShapeDtypeStruct((6, *shape), jnp.float32) for shape in ((8, 16), (16, 8))]
    x = jax.ShapeDtypeStruct((4, 8), jnp.float32)
    split = [P(None, "d"), P(None, "d")], P()
    program = sw.partition(step, pair, x, mesh=sw.Mesh({"d": 4}), in_shardings=split)
    count = len(program.communications)
    runs = sum(each.times for each in program.communications)
    assert 1 < count < runs
    page = sw.emit(program).files("step")["README.md"]
    assert f" in {runs} communications ({count} rows).\n" in page


PRODUCTS = (
    ("two rows, a column", (2, 3, 4), (4, 5), (((2,), (0,)), ((), ()))),
    ("a row, two columns", (3, 4), (4, 2, 5), (((1,), (0,)), ((), ()))),
    ("a batch", (2, 3, 4), (2, 4, 5), (((2,), (1,)), ((0,), (0,)))),
)


@pytest.mark.parametrize("case", PRODUCTS, ids=lambda case: case[0])
def test_products_in_every_order_of_dimensions(case: Any) -> None:
    """Whether or not operands are swapped instead of a transposition."""
    _, *shapes, numbers = case

    def step(x: Any, y: Any) -> Any:
        return [
            jax.lax.transpose(jax.lax.dot_general(x + float(number), y, numbers), order)
            for number, order in enumerate(itertools.permutations(range(3)))
        ]

    random = np.random.default_rng(0)
    given = [random.integers(-4, 5, shape).astype(np.float32) for shape in shapes]
    mesh = sw.Mesh({"d": 1})
    made = text(step, *[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in given], mesh=mesh)
    scope: dict[str, Any] = {}
    exec(made.replace("from __future__ import annotations\n", ""), scope)
    found = scope["program"](jax.make_mesh((1,), ("d",)))(*given)
    for one, other in zip(found, jax.jit(step)(*given), strict=True):
        np.testing.assert_array_equal(one, other)


def run(made: str, mesh: sw.Mesh, *given: Any) -> Any:
    scope: dict[str, Any] = {}
    exec(made.replace("from __future__ import annotations\n", ""), scope)
    return scope["program"](jax.make_mesh(tuple(mesh.sizes.values()), mesh.names))(*given)


def test_what_changes_no_bit_is_not_written() -> None:
    """Sums with zero, a product of constants, reshapes that cancel, and numbers of a mask that are
    compared with zero. -0.0 stays what it is in the user's function under jit."""

    def step(x: Any) -> Any:
        scale = jnp.float32(1.0) / jnp.float32(256.0)
        column = -jnp.sum(x, axis=1).reshape(4, 1)
        mask = (x > 0).astype(jnp.float32) != 0.0
        zeros = jax.lax.square(jnp.zeros((4, 8)))
        return x + zeros, x * scale, x + column.reshape(4)[:, None], jnp.where(mask, x, 1.0)

    x = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
    x[0, 0] = -0.0
    mesh = sw.Mesh({"d": 1})
    made = text(step, jax.ShapeDtypeStruct(x.shape, x.dtype), mesh=mesh)
    body = made.partition("\ndef step(")[2].partition("\n\n\n")[0]
    assert "0.00390625 * x" in body or "x * 0.00390625" in body
    for word in ("square", "zeros", "reshape", "astype", "!="):
        assert word not in body, word
    for one, other in zip(run(made, mesh, x), jax.jit(step)(x), strict=True):
        np.testing.assert_array_equal(np.signbit(one), np.signbit(other))
        np.testing.assert_array_equal(one, other)


def test_a_layer_has_the_name_of_its_weights() -> None:
    """Although one of its results has a name of its own in the program's results. A layer's part
    of a list is not called like the list."""

    def step(params: Any, cache: Any, x: Any) -> Any:
        caches = []
        for layer, own in zip(params["layers"], cache, strict=True):
            k = x @ layer["wk"] + own["k"] * own["v"]
            shifted = k - jnp.max(k, axis=1, keepdims=True)
            weights = jnp.exp(shifted) / jnp.sum(jnp.exp(shifted), axis=1, keepdims=True)
            x = x + jnp.tanh(weights @ layer["wo"]) * jnp.mean(x, axis=1, keepdims=True)
            caches.append({"k": k, "v": weights})
        return x, caches

    weights = {name: jax.ShapeDtypeStruct((8, 8), jnp.float32) for name in ("wk", "wo")}
    params, x = {"layers": [weights] * 4}, jax.ShapeDtypeStruct((4, 8), jnp.float32)
    made = text(step, params, [{"k": x, "v": x}] * 4, x, mesh=sw.Mesh({"d": 1}))
    assert "def layer(params_layer, cache_layer, x)" in made
    assert '"""Compute a layer, one of 4' in made


def test_an_optimizer_is_one_function_for_each_layer() -> None:
    """Although it maps over trees op by op. Its results are named as in the user's function, and
    keys as the function's values."""

    def update(params: Any, m: Any, grads: Any) -> Any:
        m = jax.tree.map(lambda a, g: 0.9 * a + 0.1 * g, m, grads)
        root = jax.tree.map(lambda a: jnp.sqrt(a) + 1e-8, m)
        new = jax.tree.map(lambda w, a: w - 0.1 * a / (a + 1.0), params, root)
        return new, m

    shapes = {"a": (8, 4), "b": (8, 6), "c": (8, 2, 2), "d": (8,)}
    leaves = {key: jax.ShapeDtypeStruct(shape, jnp.float32) for key, shape in shapes.items()}
    tree = {f"Block_{number}": leaves for number in range(6)}
    mesh = sw.Mesh({"d": 1})
    made = text(update, tree, tree, tree, mesh=mesh)
    assert (
        made.count("\ndef ") == 6
    )  # with update, program, the function for each leaf and two of the template
    assert made.count("= leaf_m_new(") + made.count("= leaf_new_m(") == 4
    assert "def block_m_new(" in made or "def block_new_m(" in made
    assert "Compute m and new of a Block, one of 6." in made
    numbers = np.random.default_rng(1)
    given = [jax.tree.map(lambda s: numbers.uniform(size=s.shape).astype("f4"), tree)] * 3
    found, wanted = run(made, mesh, *given), jax.jit(update)(*given)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_leaves_with_equal_updates_call_one_function() -> None:
    """Whose parameters and results have the names of the trees that the leaves are in."""

    def step(params: Any, mu: Any, x: Any) -> Any:
        made = {"params": {"norm": {}}, "mu": {"norm": {}}}
        for key in "abcdef":
            m = mu["norm"][key]
            new = 0.9 * m + 0.1 * jnp.tanh(m) * jnp.cos(m + x) - jnp.exp(-m) * x
            made["mu"]["norm"][key] = new
            made["params"]["norm"][key] = params["norm"][key] - jnp.sqrt(new * new + 1.0)
        return made

    leaf = jax.ShapeDtypeStruct((8,), jnp.float32)
    tree = {"norm": dict.fromkeys("abcdef", leaf)}
    made = text(step, tree, tree, leaf, mesh=sw.Mesh({"d": 2}))
    assert "def leaf_mu_params(mu, x, params):" in made
    assert '"""Compute mu and params of one leaf."""' in made
    assert made.count(" = leaf_mu_params(") == 6


def test_updates_count_negative_starts_once() -> None:
    """As `lax.dynamic_update_slice` does: a start before the array by more than its extent."""

    def step(x: Any, new: Any, at: Any) -> Any:
        return jax.lax.dynamic_update_slice(x, new, (at, 0)), jax.lax.dynamic_slice(
            x, (at, 0), (2, 4)
        )

    x, new = np.zeros((8, 4), np.float32), np.ones((2, 4), np.float32)
    avals = (
        *(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in (x, new)),
        jax.ShapeDtypeStruct((), int),
    )
    mesh = sw.Mesh({"d": 1})
    made = text(lambda *given: step(*given)[0], *avals, mesh=mesh)
    assert "where" not in made
    for at in (-11, -9, -8, -3, 0, 5, 9):
        start = np.int32(at)
        for found in (made, text(step, *avals, mesh=mesh)):
            one, other = run(found, mesh, x, new, start), jax.jit(step)(x, new, start)
            one = one if isinstance(one, tuple) else (one,)
            for each, expected in zip(one, other, strict=False):
                np.testing.assert_array_equal(each, expected)


def test_updates_clamp_negative_starts_that_the_program_does_not_count() -> None:
    """They do not count from the end, and starts that the program has counted and uses elsewhere do
    not count twice."""

    def step(x: Any, new: Any, at: Any) -> Any:
        counted, how = jnp.where(at < 0, at + 8, at), {"allow_negative_indices": False}
        one = jax.lax.dynamic_update_slice(x, new, (at, at), **how)
        other = jax.lax.dynamic_update_slice(x, new, (counted, 0), **how)
        return one, other, counted * 2

    x, new = np.zeros((8, 4), np.float32), np.ones((2, 2), np.float32)
    avals = (
        *(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in (x, new)),
        jax.ShapeDtypeStruct((), int),
    )
    mesh = sw.Mesh({"d": 1})
    made = text(step, *avals, mesh=mesh)
    for at in (-11, -9, -3, -1, 0, 5, 9):
        start = np.int32(at)
        pairs = zip(run(made, mesh, x, new, start), jax.jit(step)(x, new, start), strict=True)
        for each, expected in pairs:
            np.testing.assert_array_equal(each, expected)


def test_rows_of_one_are_indexed_and_added_as_a_number() -> None:
    """Instead of a gather and a scatter at index 0."""

    def step(x: Any) -> Any:
        return x.at[:, 0].get(), jnp.zeros((4, 1)).at[:, 0].add(2.0)

    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    mesh = sw.Mesh({"d": 1})
    made = text(step, jax.ShapeDtypeStruct(x.shape, x.dtype), mesh=mesh)
    assert "scatter" not in made
    assert "gather" not in made
    for one, other in zip(run(made, mesh, x), jax.jit(step)(x), strict=True):
        np.testing.assert_array_equal(one, other)


def test_rows_have_the_names_of_the_module() -> None:
    """In the page and in plan.json: a result that the function of the row assigns, its type, and
    the reason of its comment, in which an axis with the name of a value stays."""
    layers, data = [shaped(8, 32), shaped(32, 8)], shaped(16, 8)

    def step(layers: Any, data: Any) -> Any:
        def loss(layers: Any) -> Any:
            t = data
            for w1, w2 in layers:
                t = jnp.tanh(jnp.tanh(t @ w1) @ w2) + t
            return (jnp.flip(t, 0) ** 2).mean() + jnp.argmax(t, 0).max()

        grads = jax.grad(loss)(layers)
        return jax.tree.map(lambda w, g: w - 0.1 * g / jnp.abs(g).max(), layers, grads)

    specs = ([[P("data", "t"), P("t", "data")]] * 5, P("data", "t"))
    mesh = sw.Mesh({"data": 4, "t": 2})
    program = sw.partition(
        *(step, [layers] * 5, data), mesh=mesh, in_shardings=specs, out_shardings=specs[0]
    )
    bundle = sw.emit(program)
    files = bundle.files("step")
    rows = {row["number"]: row for row in json.loads(files["plan.json"])["communications"]}
    assert {row.function for row in bundle.rows.values()} > {"step"}  # some are in functions
    assert {*bundle.rows} == {*rows} == {each.number for each in program.communications}
    functions = {
        each.name: ast.get_source_segment(bundle.module, each)
        for each in ast.parse(bundle.module).body
        if isinstance(each, ast.FunctionDef)
    }
    for each in program.communications:
        row = bundle.rows[each.number]
        function = " ".join(functions[row.function].replace("\n    #   ", " ").split())
        start = f"# [C{each.number}] "
        assert f"{each.head}: {row.reason} " in function
        after = function.partition(start)[2]
        (name,), type_ = row.names, "".join(row.types)
        assert f" {name} = " in after.partition("# [C")[0]
        assert type_ == "" or f"# {type_} " in after
        assert f"`{row.function}: {name}{type_ and f': {type_}'}`" in files["README.md"]
        assert f"| {row.reason} |" in files["README.md"]
        said = {key: rows[each.number][key] for key in ("function", "names", "types", "reason")}
        assert said == json.loads(json.dumps(dataclasses.asdict(row)))
        assert "reduced takes" not in row.reason  # an op, although `reduce_max` is a value, too
        assert not re.findall(r'"(?!data"|t")\w+" splits|over "(?!data"|t")', row.reason)


def usage(program: Any) -> str:
    """The block of Python on a program's page."""
    page = sw.emit(program).files("bundle_of_page")["README.md"]
    return page.partition("```python\n")[2].partition("```")[0]


def test_the_call_on_the_page_runs(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def scaled(params: Any, x: Any) -> Any:
        return x * params["scale"]

    avals = {"scale": shaped(4)}, shaped(8, 4)
    program = sw.partition(scaled, *avals, mesh=sw.Mesh({"d": 1}))
    sw.emit(program).write(tmp_path / "bundle_of_page")
    monkeypatch.syspath_prepend(tmp_path)
    names = {"params": {"scale": np.full(4, 2, np.float32)}, "x": np.ones((8, 4), np.float32)}
    exec(usage(program), names)
    np.testing.assert_array_equal(np.asarray(names["results"]), np.full((8, 4), 2))


def test_the_call_on_the_page_pads() -> None:
    mesh = sw.Mesh({"d": 4, "e": 2})
    sides = {"in_shardings": '[{"d"}]', "out_shardings": '[{"d"}]'}
    program = sw.partition(lambda x: x + 1, shaped(6), mesh=mesh, **sides)
    assert usage(program).splitlines() == [
        "import jax",
        "from bundle_of_page import jax_spmd",
        "",
        'run = jax_spmd.program(jax.make_mesh((4, 2), ("d", "e")))',
        "results = jax_spmd.unpad(run(*jax_spmd.pad(x)))",
    ]
