"""Modules of relayouts beside the oracle: random ones, those of reports, and one with a fault."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kept_workers import KeptWorker
from places import ROOT
from random_relayouts import FEATURES, drawn, features
from ranks import free_port
from report_cases import LAYOUTS
from strategies import exactly, message

import shardwright as sw
from shardwright.codegen.checks.relayout_case import RelayoutCase
from shardwright.codegen.checks.report import Report
from shardwright.codegen.operations.verify import pool
from shardwright.codegen.operations.verify.pool import Runner
from shardwright.codegen.operations.verify.relayout import report_relayout
from shardwright.codegen.registry import NAMES
from shardwright.codegen.spec.collective_ids import relayout_id
from shardwright.codegen.spec.relayout import RelayoutDescription, describe_relayout
from shardwright.ir.stored import Stored

BACKENDS = [pytest.param(each, marks=[pytest.mark.slow] * (each == "pallas_tpu")) for each in NAMES]
REST = ("qkv_raw_rows", "fsdp2_tp_one_call", "device_order_16", "striped_layout")
"""Reports that another one is much like, which the exhaustive sweep runs."""
DTYPES = (
    *("int16", "bfloat16", "float8_e5m2", "bool", "float32", "int64", "uint8", "float64"),
    *("complex64", "float8_e8m0fnu"),
)


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "Worker", KeptWorker)


def verified(relayout: sw.Relayout, backend: str, folder: Path, gradient: bool = False) -> Report:
    """The verdict on the module of a relayout, which is emitted into a folder."""
    folder.mkdir(exist_ok=True)
    text = sw.emit(relayout, (backend,), gradient=gradient).files("moved")[f"{backend}.py"]
    return of_text(relayout, backend, folder, text)


def of_text(relayout: sw.Relayout, backend: str, folder: Path, text: str) -> Report:
    module = folder / f"{backend}.py"
    module.write_text(text)
    case = RelayoutCase.of(relayout, "moved", backend, module)
    with Runner(backend, len(case.devices())) as runner:
        return runner.run(case)


@pytest.mark.slow
def test_random_relayouts_have_all_features() -> None:
    """Those of a few seeds, which Hypothesis repeats at times."""
    relayouts = [each for number in range(5) for each in drawn(number, 40)]
    assert set().union(*map(features, relayouts)) == FEATURES
    assert len({f"{each.source}{each.target}" for each in relayouts}) > 150


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "number",
    [
        0,
        *(pytest.param(number, marks=pytest.mark.slow) for number in range(1, 4)),
        *(pytest.param(number, marks=pytest.mark.exhaustive) for number in range(4, 2000)),
    ],
)
def test_random(backend: str, number: int, tmp_path: Path) -> None:
    """A random relayout, of one dtype in turn, is right, at the bytes that the oracle counts;
    every other one with gradients."""
    (relayout,) = drawn(number)
    dtype = DTYPES[number % len(DTYPES)]
    sides = (
        Stored(side.mesh, side.tensors, side.buffers, dtype)
        for side in (relayout.source, relayout.target)
    )
    report = verified(sw.Relayout(*sides), backend, tmp_path, gradient=number % 4 > 1)
    assert report.verdict == "ok", report.detail


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.exhaustive if name in REST else pytest.mark.slow)
        for name in LAYOUTS
    ],
)
def test_of_reports(backend: str, name: str, tmp_path: Path) -> None:
    """At the bytes that the report states, and right."""
    case = LAYOUTS[name]
    source, target = (
        sw.Stored(mesh, case.tensors, layouts, case.dtype)
        for mesh, layouts in (case.source, case.target)
    )
    relayout = sw.Relayout(source, target)
    text = sw.emit(relayout, (backend,)).files("it")[f"{backend}.py"]
    assert f"RECEIVED = {case.received} " in text
    assert verified(relayout, backend, tmp_path).verdict == "ok"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_fault_is_found(backend: str, tmp_path: Path) -> None:
    """A relay that writes one element further on."""
    relayout = described().relayout()
    text = sw.emit(relayout, (backend,)).files("moved")[f"{backend}.py"]
    wrong = re.sub(r"\((\d+, \d+, \d+), 0, 0\)", r"(\1, 0, 1)", text, count=1)
    assert wrong != text
    report = of_text(relayout, backend, tmp_path, wrong)
    assert report.verdict == "failed"
    assert "elements are wrong" in report.detail


FAULTS = {
    "a sum without all copies": (".add_(part.to(whole.dtype))", ".copy_(part)"),
    "another element": ("        starts[nth],\n        start,", "        start,\n        start,"),
}
COPIED = {
    "a copy that gets no sum": ("form, *starts in BESIDE]", "form, *starts in BESIDE[1:]]"),
    "another element for a copy": ("*starts in BESIDE]", "*starts in [(*BESIDE[0][:-1], 2)]]"),
}
FAULTS |= COPIED
"""Those of `COPIED` are where the source has elements in several places."""


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_gradients_is_found(name: str, tmp_path: Path) -> None:
    """Where torch moves cotangents; all else is right."""
    tensors = {"q": (8, 2), "k": (4, 2)}
    k = "k" if name in COPIED else "k[{tp}]"
    source = sw.Stored("tp=2", tensors, {"q": "q[{tp}]", "k": k}, "bfloat16")
    target = sw.Stored("tp=2", tensors, "stack(0, q, k[{tp}], q[{tp}])", "bfloat16")
    relayout = sw.Relayout(source, target)
    text = sw.emit(relayout, ("triton_gpu",), gradient=True).files("moved")["triton_gpu.py"]
    right = of_text(relayout, "triton_gpu", tmp_path, text)
    assert (right.verdict, right.checks[-1]) == ("ok", "gradients"), right.detail
    assert text.count(FAULTS[name][0]) == 1
    report = of_text(relayout, "triton_gpu", tmp_path, text.replace(*FAULTS[name]))
    assert report.verdict == "failed"
    assert report.detail.startswith("the gradient: device "), report.detail


def described(**changes: object) -> RelayoutDescription:
    """A packed weight."""
    given = {
        "name": "qkv",
        "mesh": "tp=2",
        "dtype": "bfloat16",
        "tensors": {"q": [8, 4], "k": [4, 4]},
        "source": {"q": "q[{tp}]", "k": "k[{tp}]"},
        "target": {"qk": ["q[{tp}]", "k[{tp}]"]},
    }
    return describe_relayout(given | changes)


def test_description() -> None:
    found, derived = described(), described(gradient=True)
    for each in (found, derived):
        assert describe_relayout(each.to_dict()) == each
        bundle = sw.emit(each.relayout(), each.backends, gradient=each.gradient)
        assert bundle.description(each.name) == each
    assert (found.gradient, derived.gradient) == (False, True)
    assert relayout_id(found) != relayout_id(derived)
    assert found.relayout().target.buffers["qk"] == sw.stack(0, q="tp", k="tp")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"target": {"qk": "stack(0, q[{tp}], k[{tp} sized(1)])"}},
            """
            target: buffer qk: every element of a tensor must be on at least one device
              stack(0, q[{"tp"}], k[{"tp"} sized(1)])
                                    ^^^^^^^^^^^^^^^
            got: elements 2 to 4 of dimension 0 of k on no device
            expected: shards, parts or table entries that include them
            """,
        ),
        (
            {"source": {"q": "q '(g=3 r) c -> g r c'", "k": "k"}},
            """
            source: buffer q: the factors of a dimension must multiply to its extent
              q '(g=3 r) c -> g r c'
                ^^^^^^^^^^^^^^^^^^^^
            got: (g=3 r) for dimension 0 of extent 8
            expected: sizes whose product is 8; one size may be omitted
            """,
        ),
        (
            {"target": []},
            """
            target: a side must be a layout, or a table of layouts by buffer
            got: []
            expected: target = {qkv = 'stack(0, q[{tp}], k[{tp}])'}
            """,
        ),
        (
            {"tensors": {}},
            """
            tensors: the tensors must be a table of shapes
            got: {}
            expected: tensors = {q = [32, 16], k = [8, 16]}
            """,
        ),
    ],
)
def test_mistakes(changes: dict[str, object], expected: str) -> None:
    assert message(lambda: described(**changes)) == exactly(expected)


def test_too_large() -> None:
    """Elements are numbered with 32 bits, but in Triton."""
    whole = sw.Stored("tp=2", {"w": (1 << 20, 1 << 12)}, "w", "int8")
    relayout = sw.Relayout(whole, sw.Stored("tp=2", whole.tensors, "w[{tp}]", "int8"))
    assert sw.emit(relayout, ("triton_gpu",)).plan.total == 0
    assert message(lambda: sw.emit(relayout, ("jax_xla",))) == exactly(
        """
        source: a buffer has too many elements for the 32-bit indices of JAX modules
        got: 4,294,967,296 elements of w on a device
        expected: at most 2,147,483,647, or only the backend triton_gpu
        """
    )


@pytest.mark.parametrize("backend", ["jax_xla", pytest.param("pallas_tpu", marks=pytest.mark.slow)])
def test_of_a_reshard(backend: str, tmp_path: Path) -> None:
    """Is that reshard's module, at the least bytes, with other names."""
    source = sw.Stored("tp=4", {"x": (32, 512)}, {"rows": "x[{tp} balanced]"}, "float32")
    target = sw.Stored("tp=4", {"x": (32, 512)}, {"columns": "x[{}, {tp} sized(128)]"}, "float32")
    files = sw.emit(sw.Relayout(source, target), (backend,), gradient=True).files("moved")
    reshard = sw.Reshard((32, 512), "float32", '[{"tp"}, {}]', '[{}, {"tp"}]', mesh="tp=4")
    own = sw.emit(reshard, (backend,), "direct", gradient=True, single_file=True).files("moved")
    for file in (f"{backend}.py", f"{backend}_backward.py"):
        one, other = ({*each[file].splitlines()} for each in (files, own))
        assert {line for line in other - one if line.startswith(" " * 8) and "(" in line} == set()
    assert "RELAYS" not in files[f"{backend}.py"]
    assert verified(sw.Relayout(source, target), backend, tmp_path).verdict == "ok"


@pytest.mark.parametrize(
    ("backend", "rows", "columns"),
    [("jax_xla", 6, 10), pytest.param("pallas_tpu", 512, 64, marks=pytest.mark.slow)],
)
def test_of_a_reshard_of_a_view(backend: str, rows: int, columns: int, tmp_path: Path) -> None:
    """Interleaved heads on both sides, of uneven parts in plain JAX."""
    view = "x '(g=4 r) c -> g c r'"
    layouts = f"{view} [{{}}, {{tp}}]", f"{view} [{{}}, {{}}, {{tp}}]"
    shapes = {"x": (4 * rows, columns)}
    sides = [sw.Stored("tp=4", shapes, each, "bfloat16") for each in layouts]
    text = sw.emit(sw.Relayout(*sides), (backend,)).files("moved")[f"{backend}.py"]
    assert ("RELAYS" in text, f"SHAPE = (4, {columns}, {rows})" in text) == (False, True)
    assert verified(sw.Relayout(*sides), backend, tmp_path).verdict == "ok"


def test_of_a_reshard_on_many_devices(tmp_path: Path) -> None:
    """Runs on fewer, as the reshard does."""
    source = sw.Stored("tp=128", {"x": (256, 128)}, "x[{tp}]", "float32")
    relayout = sw.Relayout(source, sw.Stored("tp=128", {"x": (256, 128)}, "x", "float32"))
    description = RelayoutDescription.of(relayout, "moved", ("jax_xla",))
    sw.emit(relayout, ("jax_xla",)).write(tmp_path / "bundles" / "moved")
    module = tmp_path / "bundles" / "moved" / "jax_xla.py"
    with Runner("jax_xla", 64) as runner:
        report = report_relayout(description, "jax_xla", module, runner)
        assert (report.verdict, "on 8 devices" in report.detail) == ("ok", True), report.detail
        module.write_text(module.read_text() + "# a change")
        assert report_relayout(description, "jax_xla", module, runner).verdict == "failed"


GIVEN = """
import sys
from pathlib import Path
from cpu_devices import flags
import os
os.environ["XLA_FLAGS"] = flags(5)
import jax
import numpy as np
from shardwright.codegen.checks.load import load

module = load(Path(sys.argv[1]))
devices = np.array(jax.devices())
mesh = jax.sharding.Mesh(devices[[3, 1]], ("tp",))
other = jax.sharding.Mesh(devices[[1, 4]], ("tp",))
x = np.arange(24, dtype=np.float32).reshape(8, 3)
given = jax.device_put({"q": x}, module.source_sharding(mesh))
shape = (8 if sys.argv[2] == "reshard" else 24, 3)
weights = np.random.default_rng(0).integers(-4, 5, shape).astype(np.float32)
placed = jax.device_put(weights, [*module.target_sharding(other).values()][0])


def loss(buffers):
    (moved,) = module.reshard(buffers, mesh, target_mesh=other, interpret=True).values()
    return (moved * placed).sum()


found = jax.grad(loss)(given)["q"]
a, b = weights[:12], weights[12:]
stacked = np.concatenate([a[:4] + b[4:8] + a[8:], b[:4] + a[4:8] + b[8:]]) if len(b) == 12 else 0
np.testing.assert_array_equal(found, weights if len(weights) == 8 else stacked)
assert found.sharding.is_equivalent_to(given["q"].sharding, 2)
try:
    jax.jit(jax.grad(loss))(given)
except (ValueError, TypeError) as error:
    print(error)
for wrong in ({"k": given["q"]}, {"q": np.ones((4, 3), np.float32)}):
    try:
        module.reshard(wrong, mesh, target_mesh=other, interpret=True)
    except ValueError as error:
        print(error)
for wrong in (None, *(jax.sharding.Mesh(devices[places], ("tp",)) for places in ([1, 3], [0, 4]))):
    try:
        module.reshard(given, mesh, target_mesh=wrong, interpret=True)
    except ValueError as error:
        print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax_xla", "pallas_tpu"])
@pytest.mark.parametrize("kind", ["reshard", "boxes"])
def test_gradients_between_devices(backend: str, kind: str, tmp_path: Path) -> None:
    """Move back to the devices of the source, outside jit; errors name the buffer."""
    layouts = {"reshard": "q[{tp}]", "boxes": "stack(0, q[{tp}], q[{tp} reversed], q[{tp}])"}
    sides = (
        sw.Stored(f'<["tp"=2], device_ids={ids}>', {"q": (8, 3)}, layout, "float32")
        for ids, layout in (("[3, 1]", "q[{tp}]"), ("[1, 4]", layouts[kind]))
    )
    bundle = sw.emit(sw.Relayout(*sides), (backend,), gradient=True)
    for file, text in bundle.files("moved").items():
        (tmp_path / file).write_text(text)
    words = [sys.executable, "-c", GIVEN, str(tmp_path / f"{backend}.py"), kind]
    found = subprocess.run(words, capture_output=True, text=True, cwd=ROOT / "tests")
    assert "outside" in found.stdout, found.stderr
    missing = "target_mesh: got None, expected a mesh with the axes {'tp': 2}"
    wanted = "the ids [1, 4], the devices that mesh has for [3, 1], and devices outside mesh for"
    of_ids = [
        missing,
        f"target_mesh: got devices [1, 3], expected, for {wanted} other ids",
        f"target_mesh: got devices [0, 4], expected, for {wanted} other ids",
    ]
    of_meshes = {
        ("jax_xla", "reshard"): [
            f"{missing}, because the source mesh lacks some of the target's devices",
            "target_mesh: got cpu:3 for both logical ids 3 and 4, expected two devices",
            "logical id 1: got cpu:1 in the source mesh and cpu:0 in the target mesh, expected the "
            "same device",
        ],
    }
    assert found.stdout.splitlines()[1:] == [
        "buffers: got ['k'], expected ['q']",
        "q: got float32[4, 3], expected float32[8, 3]",
        *of_meshes.get((backend, kind), of_ids),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax_xla", "pallas_tpu"])
def test_gradients(backend: str, tmp_path: Path) -> None:
    """An element's cotangent is the sum of those of its copies, on every replica of it."""
    tensors = {"q": (8, 3), "k": (4, 3)}
    source = sw.Stored("dp=2,tp=2", tensors, {"q": "q[{tp}]", "k": "k[{dp}]"}, "float32")
    stack = 'stack(0, q[{tp}], k[{"tp":(1)2}], q[{tp}])'
    layouts = {"stack": stack, "padded": "k[{tp} sized(2)]"}
    target = sw.Stored("tp=4", tensors, layouts, "float32")
    bundle = sw.emit(sw.Relayout(source, target), (backend,), gradient=True)
    (tmp_path / "moved.py").write_text(bundle.files("moved")[f"{backend}.py"])
    words = [sys.executable, str(ROOT / "tests/relayout_gradient_process.py")]
    found = subprocess.run([*words, str(tmp_path / "moved.py")], capture_output=True, text=True)
    assert found.stdout == "ok\n", found.stderr


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", ["complex64", "float8_e8m0fnu", "int4", "float4_e2m1fn"])
def test_dtypes(backend: str, dtype: str, tmp_path: Path) -> None:
    """Those of relayouts alone, two of which have two elements in a byte."""
    tensors = {"q": (4, 8), "k": (2, 8)}
    source = sw.Stored("tp=2", tensors, {"q": "q[{tp}]", "k": "k[{tp}]"}, dtype)
    factors = "'(g=2 r) c -> g r c' [{}, {}, {tp}]"
    target = sw.Stored("tp=4", tensors, f"stack(1, q {factors}, k {factors})", dtype)
    report = verified(sw.Relayout(source, target), backend, tmp_path, gradient=True)
    assert report.verdict == "ok", report.detail


def ran_by_ranks(relayout: sw.Relayout, folder: Path) -> tuple[list[Any], dict[str, Any]]:
    """What the ranks of gloo have afterwards, and the tensors whose elements are 0, 1, 2, ..."""
    text = sw.emit(relayout, ("triton_gpu",), gradient=True).files("moved")["triton_gpu.py"]
    (folder / "moved.py").write_text(text)
    source, shapes = relayout.source, relayout.source.tensors
    values = {name: np.arange(np.prod(shape)).reshape(shape) for name, shape in shapes.items()}
    whole = {name: each.astype(source.dtype) + 100 * (name == "k") for name, each in values.items()}
    held = source.shards(whole)
    given = {f"{device} {name}": x for device in held for name, x in held[device].items()}
    np.savez(folder / "given.npz", **given)
    words = [sys.executable, str(ROOT / "tests/relayout_rank.py"), str(folder / "moved.py")]
    port, count = str(free_port()), len({*source.mesh.device_ids, *relayout.target.mesh.device_ids})
    ranks = [subprocess.Popen([*words, str(rank), port]) for rank in range(count)]
    assert [rank.wait(timeout=200) for rank in ranks] == [0] * count
    return [dict(np.load(folder / f"{rank}.npz")) for rank in range(count)], whole


@pytest.mark.slow
def test_among_processes(tmp_path: Path) -> None:
    """Ranks of gloo exchange messages; some have no source buffer, and some no target buffer."""
    tensors = {"q": (8, 6), "k": (4, 6)}
    source = sw.Stored('<["tp"=2], device_ids=[3, 5]>', tensors, "stack(0, q[{tp}], k)", "int32")
    other = '<["tp"=2], device_ids=[4, 3]>'
    target = sw.Stored(other, tensors, {"q": "q '(g=2 r) c -> r g c' [{tp}]", "k": "k"}, "int32")
    every, whole = ran_by_ranks(sw.Relayout(source, target), tmp_path)
    for found, device in zip(every, (3, 4, 5), strict=True):
        wanted = target.shards(whole).get(device, {})
        assert found.keys() == wanted.keys()
        for name, x in wanted.items():
            np.testing.assert_array_equal(found[name], x)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["cut(0, {tp}, stack(0, q, k))", "stack(0, q, k[{tp}])"])
def test_gradients_among_processes(layout: str, tmp_path: Path) -> None:
    """Cotangents of all copies, two on one rank, arrive where the element is, once or twice."""
    tensors = {"q": (8, 6), "k": (4, 6)}
    source = sw.Stored("tp=2", tensors, layout, "float32")
    target = sw.Stored("tp=2", tensors, "stack(0, q[{tp}], k, q[{tp}])", "float32")
    every, whole = ran_by_ranks(sw.Relayout(source, target), tmp_path)
    wanted = source.shards({name: 4 * each for name, each in whole.items()})  # two copies of each
    for device, found in enumerate(every):
        np.testing.assert_array_equal(found["buffer'"], wanted[device]["buffer"])
