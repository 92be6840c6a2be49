"""Derivatives of emitted modules: what moves cotangents back is the reverse reshard."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from running import verified
from sessions import session

from shardwright.codegen.checks.case import Case
from shardwright.codegen.moves import plan
from shardwright.codegen.operations.emit.emit import emit
from shardwright.codegen.operations.emit.modules import parts, reverse
from shardwright.ir import Mesh, Reshard

GRID = Mesh({"x": 2, "y": 2})
ROWS, COLUMNS = GRID.sharding('[{"x", "y"}, {}]'), GRID.sharding('[{}, {"x"}]')
SAME_AXES = Reshard(
    (8, 4), "float32", GRID.sharding('[{"x"}, {"y"}]'), GRID.sharding('[{"y"}, {"x"}]')
)
REVERSED = Reshard(
    (8, 4),
    "float32",
    GRID.sharding('[{"x"}, {"y"}]'),
    Mesh({"x": 2, "y": 2}, [3, 2, 1, 0]).sharding('[{"x"}, {"y"}]'),
)
UNEVEN = Reshard((13, 7), "bfloat16", ROWS, COLUMNS)
NESTED = Reshard((13, 7), "float16", ROWS, COLUMNS, source_split="nested")
SMALL = Reshard((5, 3), "float8_e4m3fn", COLUMNS, ROWS)
LINE_OF_TWO = Mesh({"x": 2})
PAIR = Reshard(
    (5, 3), "bfloat16", LINE_OF_TWO.sharding('[{"x"}, {}]'), LINE_OF_TWO.sharding('[{}, {"x"}]')
)
SCALAR = Reshard((), "float32", GRID.sharding("[]"), GRID.sharding("[]"))
OTHER_AXES = Reshard((8, 16), "float32", COLUMNS, Mesh({"t": 4}).sharding('[{"t"}, {}]'))
LINE = Mesh({"x": 4})
SUB_AXES = Reshard(
    (8, 4), "float32", LINE.sharding('[{"x"}, {}]'), LINE.sharding('[{"x":(2)2}, {"x":(1)2}]')
)
FEWER = Reshard(
    (7, 5),
    "float32",
    Mesh({"x": 2}).sharding('[{"x"}, {}]'),
    Mesh({"t": 3}, [2, 9, 1]).sharding('[{}, {"t"}]'),
)

LOADED = """
from pathlib import Path
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, Mesh
from shardwright.codegen.checks.oracle import definition as oracle
from shardwright.codegen.checks.case import Case
from shardwright.codegen.checks.load import load

case = Case.from_json(line)
m = load(Path(path))
ids = case.devices()


def mesh_of(placement):
    sizes = [size for _, size in placement.axes]
    devices = [jax.devices()[ids.index(device)] for device in placement.device_ids]
    return Mesh(np.array(devices).reshape(sizes), [name for name, _ in placement.axes])


mesh, target_mesh = mesh_of(case.source), mesh_of(case.target)
numbers = np.random.default_rng(0)


def array(placement, sharding):
    # Padding too is not zero: it is not to be read.
    shape = oracle.padded(placement, np.zeros(case.shape, np.uint8), 0).shape
    return jax.device_put(numbers.integers(1, 9, shape).astype(m.DTYPE), sharding)


def sources():
    return array(case.source, m.source_sharding(mesh))


def targets():
    return array(case.target, m.target_sharding(target_mesh))


def f(x):
    more = {"interpret": True} if backend == "pallas_tpu" else {}
    return m.reshard(x, mesh, target_mesh=target_mesh, **more)


def between(first, second, array):
    array = np.asarray(array)
    bits = array.view(f"u{array.itemsize}")
    return oracle.padded(second, oracle.unpadded(first, case.shape, bits), 0).view(array.dtype)


def forward(x):
    return between(case.source, case.target, x)


def backward(y):
    return between(case.target, case.source, y)


def same(got, expected):
    got = np.asarray(got)
    assert got.dtype == expected.dtype and got.shape == expected.shape, (got, expected)
    assert got.tobytes() == expected.tobytes(), (got, expected)
"""

DERIVED = """
x, t, y = sources(), sources(), targets()
same_order = tuple(case.source.device_ids) == tuple(case.target.device_ids)


def derived(x, t, y):
    z, pull = jax.vjp(f, x)
    u, v = jax.jvp(f, (x,), (t,))
    return z, pull(y)[0], u, v


for way in (lambda f: f, jax.jit) if same_order else (lambda f: f,):
    z, back, u, v = way(derived)(x, t, y)
    for got, wanted in ((z, forward(x)), (back, backward(y)), (u, forward(x)), (v, forward(t))):
        same(got, wanted)
same(jax.vjp(f, np.asarray(x))[1](np.asarray(y))[0], backward(y))
"""

MORE = """
for way in (lambda f: f, jax.jit) if same_order else (lambda f: f,):
    same(way(lambda y: jax.linear_transpose(f, x)(y)[0])(y), backward(y))
    same(way(lambda x, t: jax.linearize(f, x)[1](t))(x, t), forward(t))
    back = lambda y: jax.vjp(f, x)[1](y)[0]
    same(way(lambda t: jax.vjp(back, y)[1](t)[0])(t), forward(t))
    gradient = way(jax.grad(lambda x: (y * f(x)).astype(jnp.float32).sum()))(x)
    same(gradient, backward(y))
    assert gradient.sharding.is_equivalent_to(m.source_sharding(mesh), gradient.ndim)
"""


def emitted(reshard: Reshard, folder: Path, backend: str = "pallas_tpu") -> Path:
    """The module of a reshard on disk, its backward beside it if it has one."""
    made = parts(plan(reshard), backend, "shardwright emit", gradient=True, single_file=True)
    for part in made:
        (folder / part.file).write_text(part.text)
    return folder / f"{backend}.py"


def ran(reshard: Reshard, program: str, path: Path) -> str:
    """What a program prints that has the module of a reshard and numpy's answers."""
    backend = path.stem.removesuffix("_backward")
    line = Case.of(reshard, "a", backend, path).to_json()
    return session().run(LOADED + program, path=str(path), line=line, backend=backend)


def about(reshard: Reshard) -> str:
    return f"{reshard.dtype} {reshard.source} to {reshard.target}"


@pytest.mark.parametrize(
    "reshard",
    [
        *(pytest.param(each, marks=pytest.mark.slow) for each in (NESTED, REVERSED)),
        *(
            pytest.param(each, marks=pytest.mark.exhaustive)
            for each in (SAME_AXES, OTHER_AXES, SUB_AXES, UNEVEN, SMALL, SCALAR, FEWER)
        ),
    ],
    ids=about,
)
def test_every_derivative(reshard: Reshard, tmp_path: Path) -> None:
    """Second derivatives, `linearize`, `linear_transpose` and `grad` too. Of `vjp` and `jvp` alone
    the table of cases has every kind of reshard."""
    ran(reshard, DERIVED + MORE, emitted(reshard, tmp_path))


EXPLICIT = """
mesh = target_mesh = Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Explicit,) * 2)
x, y = sources(), targets()
elsewhere = jax.device_put(x, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("y")))
with jax.set_mesh(mesh):
    for way in (lambda f: f, jax.jit):
        gradient = way(jax.grad(lambda x: (y * f(x)).sum()))(elsewhere)
        same(gradient, backward(y))
        assert gradient.sharding.is_equivalent_to(elsewhere.sharding, gradient.ndim)
"""


@pytest.mark.slow
def test_explicit_axes(tmp_path: Path) -> None:
    """A gradient has the type of what it is with respect to."""
    ran(SAME_AXES, EXPLICIT, emitted(SAME_AXES, tmp_path))


WHOLE = """
from jax.dtypes import float0

y, pull = jax.vjp(f, sources())
(gradient,) = pull(np.zeros(m.PADDED_TARGET_SHAPE, float0))
assert gradient.dtype == float0 and gradient.shape == m.PADDED_SOURCE_SHAPE
_, tangent = jax.jvp(f, (sources(),), (np.zeros(m.PADDED_SOURCE_SHAPE, float0),))
assert tangent.dtype == float0 and tangent.shape == m.PADDED_TARGET_SHAPE
w = jnp.float32(2)
assert jax.grad(lambda w, x: w * f(x).astype(jnp.float32).sum())(w, sources()) > 0
"""


@pytest.mark.parametrize("source", [PAIR], ids=["one order"])
def test_integers_have_no_derivative(source: Reshard, tmp_path: Path) -> None:
    reshard = Reshard(source.shape, "int8", source.source, source.target)
    ran(reshard, WHOLE, emitted(reshard, tmp_path, "jax_xla"))
    assert [path.name for path in tmp_path.glob("*.py")] == ["jax_xla.py"]


FAILING = """
try:
    jax.vjp(f, sources())[1](targets())
except Exception as error:
    print(f"{type(error).__name__}: {error}")
"""


@pytest.mark.slow
@pytest.mark.parametrize("reshard", [PAIR, REVERSED], ids=["one order", "two orders"])
def test_without_the_reverse_reshard(reshard: Reshard, tmp_path: Path) -> None:
    path = emitted(reshard, tmp_path, "jax_xla")
    backward = tmp_path / "jax_xla_backward.py"
    backward.write_text(path.read_text())
    module, said = rf"\w+\.{tmp_path.name}\.jax_xla_backward", "ImportError: {}\n"
    wrong = said.format(f"{module} is not the reverse of this reshard: emit both again")
    assert re.fullmatch(wrong, ran(reshard, FAILING, path))
    backward.unlink()
    wrong = said.format(
        f"the derivative of reshard needs the reverse reshard, but {module} is missing"
    )
    assert re.fullmatch(wrong, ran(reshard, FAILING, path))


PULLED = """
y = targets()
same(jax.vjp(f, sources())[1](y)[0], backward(y))
"""


def test_the_backward_has_the_module_for_its_own(tmp_path: Path) -> None:
    emitted(PAIR, tmp_path, "jax_xla")
    assert ran(reverse(PAIR), PULLED, tmp_path / "jax_xla_backward.py") == ""


@pytest.mark.parametrize("reshard", [PAIR, REVERSED], ids=["one order", "two orders"])
def test_without_a_gradient(reshard: Reshard, tmp_path: Path) -> None:
    """None is asked for: what is differentiated is an error, and never silently constant."""
    (part,) = parts(plan(reshard), "pallas_tpu", "shardwright emit", single_file=True)
    (tmp_path / part.file).write_text(part.text)
    assert ran(reshard, FAILING, tmp_path / part.file) == (
        "NotImplementedError: this module has no derivative: emit it with gradient=True "
        "(--gradient), or pass stop_gradient(x) to reshard\n"
    )


STAGED = """
used = []
hosts = m._HOST, m._HOST.operation.reverse
for host in hosts:
    own = host.program.exchange
    host.program.exchange = lambda *given, own=own: [used.append(given[-1]), own(*given)][1]
for given in (None, 8):
    moved = lambda x: m.reshard(x, mesh, interpret=True, collective_id=given)
    jax.jit(lambda x, y: jax.vjp(moved, x)[1](y)[0]).lower(sources(), targets())
    print(*(number if given else number in [host.program.collective_id for host in hosts]
            for number in sorted(set(used))))
    used.clear()
"""


def test_the_collective_id_can_be_given(tmp_path: Path) -> None:
    """That of the backward differs in its last bit."""
    assert ran(PAIR, STAGED, emitted(PAIR, tmp_path)) == "True True\n8 9\n"


@pytest.mark.slow
def test_verify_runs_the_backward_and_the_derivative(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    emit(UNEVEN, ("pallas_tpu",), gradient=True, single_file=True).write(tmp_path / "a")
    (report,) = verified(tmp_path)
    assert (report.verdict, report.detail) == ("ok", "")
    assert {"derivative", "backward"} <= set(report.checks)


@pytest.mark.parametrize(
    ("words", "instead", "detail"),
    [
        (
            "reshard, pad, unpad = _HOST.reshard",
            "made, _PROGRAM.exchange = _PROGRAM.exchange, lambda *given: made(*given) * 2\n"
            "reshard, pad, unpad = _HOST.reshard",
            r"pallas_tpu_backward\.py: device \d: \d+ of \d+ elements are wrong; .*",
        ),
        (
            "source_shape, target_shape = _SOURCE.shape, ",
            "source_shape, target_shape = lambda device: (), ",
            r"pallas_tpu_backward\.py: source_shape\(0\): got: \(\), expected: \(5, 2\)",
        ),
    ],
    ids=["values", "a constant"],
)
def test_a_wrong_backward_is_caught(words: str, instead: str, detail: str, tmp_path: Path) -> None:
    pytest.importorskip("jax")
    emit(PAIR, ("pallas_tpu",), gradient=True, single_file=True).write(tmp_path / "a")
    path = tmp_path / "a" / "pallas_tpu_backward.py"
    text = path.read_text()
    assert text.count(words) == 1
    path.write_text(text.replace(words, instead))
    (report,) = verified(tmp_path)
    assert report.verdict == "failed"
    assert re.fullmatch(detail, report.detail), report.detail


def test_a_wrong_derivative_is_caught(tmp_path: Path) -> None:
    """By the support module that all modules in JAX share."""
    pytest.importorskip("jax")
    emit(PAIR, ("jax_xla",), gradient=True, single_file=True).write(tmp_path / "a")
    path = tmp_path / "a" / "jax_xla.py"
    words = "x_bar = host.operation.reverse.operation.bind("
    text = path.read_text()
    assert text.count(words) == 1
    path.write_text(text.replace(words, "x_bar = 2 * host.operation.reverse.operation.bind("))
    (report,) = verified(tmp_path)
    assert report.verdict == "failed"
    wrong = r"the derivative: device \d: \d+ of \d+ elements are wrong; .*"
    assert re.fullmatch(wrong, report.detail), report.detail


def test_a_missing_backward_is_caught(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    emit(PAIR, ("pallas_tpu",), gradient=True, single_file=True).write(tmp_path / "a")
    (tmp_path / "a" / "pallas_tpu_backward.py").unlink()
    (report,) = verified(tmp_path)
    assert report.detail == (
        f"pallas_tpu_backward.py: the module is missing: {tmp_path}/a/pallas_tpu_backward.py"
    )


def test_a_bundle_whose_reverse_is_refused_has_no_backward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from shardwright.codegen import registry
    from shardwright.ir import InputError

    def refuse(refused: object) -> None:
        if refused.reshard == reverse(UNEVEN):  # type: ignore[attr-defined]
            raise InputError("no")

    monkeypatch.setattr(registry.backend("pallas_tpu"), "refuse", refuse)
    files = emit(UNEVEN, ("pallas_tpu",)).files("a")
    assert "pallas_tpu_backward.py" not in files
    assert "reverse reshard" not in files["README.md"]


def test_the_page_names_the_backward() -> None:
    files = emit(UNEVEN, gradient=True).files("a")
    said = (
        "cotangents back for derivatives, is in `pallas_tpu_backward.py`, `triton_gpu_backward.py`."
    )
    assert said in " ".join(files["README.md"].split())
    command = re.search(r"Emitted by\n    (.*)", files["pallas_tpu.py"])
    back = re.search(r"Emitted by\n    (.*)", files["pallas_tpu_backward.py"])
    assert command
    assert back
    assert back[1] == command[1] + "  # pallas_tpu_backward.py, the backward"
