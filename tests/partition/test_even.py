"""Arguments and results whose extents do not divide: padded arrays, `pad` and `unpad`."""

from __future__ import annotations

import ast

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from programs import findings
from strategies import exactly, message
from sweeps import swept

import shardwright as sw
from shardwright.ir.program_check import well_formed

ROWS, WHOLE = '[{"d"}, {}]', "[{}, {}]"
PADS = {"pad", "unpad"}


def functions(program: sw.Partitioned) -> set[str]:
    """The names of the functions of a program's module."""
    nodes = ast.walk(ast.parse(sw.emit(program).module))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef)}


def wrong(script: str, *words: str) -> dict[str, str]:
    """What is wrong with programs."""
    return {name: said for name, said in findings(script, *words).items() if said}


def test_random_functions_have_one_devices_values() -> None:
    assert wrong("emitted_process.py", "edges", "0", "2") == {}


@pytest.mark.parametrize("start", swept(range(0, 320, 8), 64))
def test_the_sweep_of_random_functions(start: int) -> None:
    assert wrong("emitted_process.py", "edges", str(start), str(start + 8)) == {}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [114, 118])
def test_random_functions_that_were_wrong(seed: int) -> None:
    """The gradient of rows taken with mode="clip", and a docstring of more than 100 columns."""
    assert wrong("emitted_process.py", "edges", str(seed), str(seed + 1)) == {}


@pytest.mark.parametrize("mode", ["cheapest", pytest.param("as_shardy", marks=pytest.mark.slow)])
def test_padded_arrays_in_and_out(mode: str) -> None:
    """Steps, scans, dtypes, donation, meshes of Explicit axes; the padding of arguments is NaN."""
    assert wrong("padded_process.py", "cases", mode) == {}


def test_faults_are_found() -> None:
    starts = {
        "a pad read": "result 2: device 0: different elements are finite",
        "a mask left out": "result 1: device 0: off by",
        "a mean over the padded count": "result 1: device 0: off by",
        "padding of a result": "ValueError: the padding of a result is not zero",
        "an index beyond the last row": "result 0: device 0: off by",
        "an index of the padding": "result 1: device 0: off by",
    }
    found = findings("padded_process.py", "faults")
    assert found.pop("none") == ""
    assert found.keys() == starts.keys()
    for name, start in starts.items():
        assert found[name].startswith(start), name


def test_messages() -> None:
    embed = "state.weights['embed']"
    inner = "{'embed': *, 'head': *}, {'embed': *, 'head': *}"
    padded = " or (padded) "
    assert findings("padded_process.py", "messages") == {
        "program": f"{embed}: got float32[50, 6], expected float32[56, 6] (call pad)",
        "pad": f"{embed}: got int32[9], expected float32[50, 6]{padded}float32[56, 6]",
        "pad of few": "arguments: got 1, expected 2: state, ids",
        "pad of a wrong tree": (
            "state: got PyTreeDef(({'embeds': *}, {'embed': *, 'head': *})), "
            f"expected PyTreeDef(({inner}))"
        ),
        "pad of another class": "",
        "pad of no array": f"ids: got a value of type str, expected int32[9]{padded}int32[16]",
        "pad of a number": f"ids: got int32[], expected int32[9]{padded}int32[16]",
        "pad twice": "",
        "pad on a mesh": "mesh: got {'e': 8}, expected a jax Mesh with the axes {'d': 8}",
        "unpad": "results[0].weights['embed']: got float32[50, 6], expected float32[56, 6]",
        "unpad of few": (
            f"results: got PyTreeDef({{'embed': *, 'head': *}}), expected PyTreeDef((({inner}), *))"
        ),
        "unpad of a smaller array": (
            "results['embed']: got the shape (50, 6), expected (56, 6) or larger"
        ),
        "unpad of another tree": "results: got PyTreeDef(*), expected PyTreeDef([*])",
        "Partitioned.pad": exactly("""
            arguments[0].weights['embed']: the arguments must have the types of the function's
            got: i32[9]
            expected: f32[50,6] or (padded) f32[56,6]"""),
        "Partitioned.pad of few": exactly(f"""
            arguments: the arguments must be a tree like the function's
            got: PyTreeDef((*,))
            expected: PyTreeDef((CustomNode(namedtuple[State], [{inner}]), *))"""),
        "Partitioned.pad of no array": exactly("""
            arguments[1]: the arguments must have the types of the function's
            got: a value of type str
            expected: i32[9] or (padded) i32[16]"""),
        "Partitioned.pad on a mesh": exactly("""
            mesh: the mesh must be a jax mesh with the axes of the program's mesh
            got: 8
            expected: a jax.sharding.Mesh with the axes {'d': 8}"""),
        "Partitioned.unpad": exactly("""
            results[0].weights['embed']: the results must have the types of the function's
            got: f32[50,6]
            expected: f32[56,6]"""),
        "Partitioned.unpad of a smaller array": exactly("""
            results: the results must be as large as in `like`, or larger
            got: (9,)
            expected: (16,)"""),
        "Partitioned.unpad of another tree": exactly("""
            results: the results must be a tree like `like`
            got: PyTreeDef(*)
            expected: PyTreeDef([*])"""),
    }


def types(program: sw.Partitioned) -> list[str]:
    """The padded types of arguments and results."""
    local = program.local
    return [str(local.of(v).shape) for v in (*local.body.arguments, *local.body.results)]


def test_only_stated_shardings_pad() -> None:
    """Others become whole, and a dimension that another sharding divides keeps its extent."""
    mesh, aval = sw.Mesh({"d": 4, "e": 3}), jax.ShapeDtypeStruct((30, 6), "float32")
    sides = {"in_shardings": (ROWS,), "out_shardings": (None, ROWS, '[{"e"}, {?}]', WHOLE)}
    program = sw.partition(lambda x: (x + 1, x + 2, x + 3, x + 4), aval, mesh=mesh, **sides)
    assert types(program) == ["(32, 6)", "(30, 6)", "(32, 6)", "(30, 6)", "(30, 6)"]
    assert program.padding == 2 * 2 * 6
    well_formed(program.local.program)


def test_what_does_not_divide_is_padded_as_the_propagated_axes_need() -> None:
    mesh, aval = sw.Mesh({"d": 4, "e": 2}), jax.ShapeDtypeStruct((30, 6), "float32")
    sides = {"in_shardings": ('[{"d", ?}, {?}]', '[{"d", "e"}, {}]'), "out_shardings": "[]"}
    program = sw.partition(lambda x, y: (x * y).sum(), aval, aval, mesh=mesh, **sides)
    assert types(program)[:2] == ["(32, 6)", "(32, 6)"]
    assert [str(program.program.values[0].sharding.dims[0])] == ['{"d", "e", ?}']


def test_nothing_moves_for_padding() -> None:
    aval = jax.ShapeDtypeStruct((30, 6), "float32")
    for mode in ("as_shardy", "cheapest"):
        sides = {"in_shardings": (ROWS,), "out_shardings": ROWS, "mode": mode}
        program = sw.partition(lambda x: x * 2, aval, mesh=sw.Mesh({"d": 4}), **sides)
        assert program.communications == ()


@pytest.mark.parametrize("mode", ["as_shardy", "cheapest"])
def test_rows_that_do_not_divide_become_columns(mode: str) -> None:
    """Every device gets the rows of its columns that it lacks; it does not sum zeros."""
    aval, sides = jax.ShapeDtypeStruct((31, 18), "bfloat16"), {"in_shardings": (ROWS,)}
    sides["out_shardings"] = '[{}, {"e"}]'
    mesh = sw.Mesh({"d": 2, "e": 2})
    program = sw.partition(lambda x: x * 2, aval, mesh=mesh, mode=mode, **sides)
    assert program.bytes_received == 16 * 9 * 2
    (only,) = program.communications
    assert only.reason == (
        "out without its padding needs dimension 0 of out whole: "
        "2 does not divide the 31 elements of dimension 0 of out"
    )


@pytest.mark.parametrize("mode", ["as_shardy", "cheapest"])
def test_loops_carry_padded_values(mode: str) -> None:
    """Only the sums of the three iterations are reduced."""
    aval = jax.ShapeDtypeStruct((30, 6), "float32")
    program = sw.partition(
        lambda x: lax.scan(lambda c, _: (jnp.sin(c), c.sum()), x, length=3),
        *(aval,),
        mesh=sw.Mesh({"d": 8}),
        in_shardings=(ROWS,),
        out_shardings=(ROWS, None),
        mode=mode,
    )
    (only,) = program.communications
    assert (only.op, only.bytes) == ("all_reduce", 21)
    well_formed(program.local.program)


@pytest.mark.parametrize("mode", ["as_shardy", "cheapest"])
def test_a_table_is_read_where_its_rows_are(mode: str) -> None:
    """Only the 16 rows that are read move, and not the 50 of the table."""
    avals = jax.ShapeDtypeStruct((50, 4), "float32"), jax.ShapeDtypeStruct((16,), "int32")
    sides = {"in_shardings": (ROWS, "[{}]"), "out_shardings": WHOLE, "mode": mode}
    program = sw.partition(lambda x, ids: x[ids], *avals, mesh=sw.Mesh({"d": 8}), **sides)
    (only,) = program.communications
    assert (only.op, only.received) == ("all_reduce", 2 * 16 * 4 * 4 * 7 // 8)


def test_remedies_pad_nothing_more() -> None:
    """The reshard of x has the remedy that its rows are split, but not one that pads them."""
    for rows, expected in ((32, 1), (30, 0)):
        aval = jax.ShapeDtypeStruct((rows, 8), "float32")
        sides = {"in_shardings": ('[{}, {"d"}]',), "out_shardings": "[{}, {}]"}
        fn = lambda x: sw.constrain(jax.numpy.sin(x), '[{"d"}, {}]') + 1  # noqa: E731
        program = sw.partition(fn, aval, mesh=sw.Mesh({"d": 4}), **sides)
        made = [said for said, _ in program.remedies(1) if said == 'x as [{"d"}, {}]']
        assert len(made) == expected


def test_nothing_is_not_padded() -> None:
    """Nine rows of no elements would have no padding either."""
    aval = jax.ShapeDtypeStruct((8, 0), "float32")
    program = sw.partition(lambda x: x, aval, mesh=sw.Mesh({"d": 3}), in_shardings=(ROWS,))
    assert (types(program), program.padding) == (["(8, 0)", "(8, 0)"], 0)
    assert PADS.isdisjoint(functions(program))


def test_a_padded_program_has_kernels() -> None:
    """Its functions have names that no support module has."""
    avals = [jax.ShapeDtypeStruct(shape, "bfloat16") for shape in ((1022, 1024), (1024, 2046))]
    program = sw.partition(
        *(lambda x, w: jnp.tanh(x @ w), *avals),
        mesh=sw.Mesh({"d": 4}),
        in_shardings=(ROWS, '[{}, {"d"}]'),
        out_shardings='[{}, {"d"}]',
        mode="cheapest",
        topology="v5e:2x2",
        kernels=("pallas_tpu",),
    )
    module = sw.emit(program).module
    assert "= RingMatmul(" in module
    assert "def unpad(results, *" in module


def test_random_keys_are_not_padded() -> None:
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 10))
    fn = jax.vmap(lambda key: jax.random.normal(key, (3,)))
    program = sw.partition(fn, keys, mesh=sw.Mesh({"d": 4}), in_shardings=('[{"d"}]',))
    assert message(lambda: program.local) == exactly("""
        key: random keys cannot be padded to equal shards
        got: dimension 0 of 10 keys in 4 parts
        expected: 12 keys, or the keys' data (jax.random.key_data)""")


def test_partial_sums_are_refused() -> None:
    aval = jax.ShapeDtypeStruct((30, 6), "float32")
    given = ('[{"d"}, {}], unreduced={"t"}',)
    program = sw.partition(lambda x: x, aval, mesh=sw.Mesh({"d": 4, "t": 2}), in_shardings=given)
    assert message(lambda: program.local).startswith(
        "x: arguments and results of an emitted program must not be partial sums"
    )


def test_a_program_that_divides_has_neither_pad_nor_unpad() -> None:
    aval = jax.ShapeDtypeStruct((32, 6), "float32")
    program = sw.partition(lambda x: x, aval, mesh=sw.Mesh({"d": 4}), in_shardings=(ROWS,))
    assert program.padding == 0
    assert PADS.isdisjoint(functions(program))
