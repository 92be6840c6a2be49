"""Groups in JAX: a pytree in one jitted call, bitwise right, with the bytes of its plans."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import verified as reports
from sessions import session
from sweeps import sampled
from typer.testing import CliRunner

from shardwright.codegen.cli import app

pytest.importorskip("jax")

CONFIG = """\
[defaults]
dtype = "bfloat16"
backends = ["jax_xla", "pallas_tpu"]
[mesh]
trainer = "fsdp=4,tp=2"
server = '<["tp"=4], device_ids=[8, 9, 10, 11]>'
among = '<["tp"=6], device_ids=[9, 2, 3, 0, 8, 11]>'
within = "tp=8"

[[group]]
name = "apart"
mesh = "trainer"
target_mesh = "server"
tensors = [
  {name = "layer0.wq", shape = [64, 48], source = '[{"fsdp", "tp"}, {}]', target = '[{}, {"tp"}]'},
  {name = "layer0.wk", shape = [64, 48], source = '[{"fsdp", "tp"}, {}]', target = '[{}, {"tp"}]'},
  {name = "layer0.norm", shape = [60], source = '[{"fsdp"}]', target = '[{}]', dtype = "float32"},
  {name = "step", shape = [], source = '[]', target = '[]', dtype = "int32"},
]

[[group]]
name = "overlapping"
mesh = "trainer"
target_mesh = "among"
tensors = [
  {name = "o.w", shape = [31, 24], source = '[{"fsdp"}, {"tp"}]', target = '[{}, {"tp"}]'},
  {name = "o.v", shape = [31, 24], source = '[{"fsdp"}, {"tp"}]', target = '[{"tp"}, {}]'},
]

[[group]]
name = "same"
mesh = "trainer"
target_mesh = "within"
gradient = true
tensors = [
  {name = "a.wq", shape = [64, 48], source = '[{"fsdp"}, {"tp"}]', target = '[{}, {"tp"}]'},
  {name = "a.wk", shape = [64, 48], source = '[{"fsdp"}, {"tp"}]', target = '[{}, {"tp"}]'},
  {name = "a.wo", shape = [33, 50], source = '[{"fsdp"}, {"tp"}]', target = '[{}, {"tp"}]'},
  {name = "a.norm", shape = [60], source = '[{"fsdp"}]', target = '[{}]', dtype = "float32"},
  {name = "a.mask", shape = [16, 16], source = '[{"fsdp"}, {}]', target = '[{"tp"}, {}]', \
dtype = "bool"},
  {name = "a.ids", shape = [16, 16], source = '[{"fsdp"}, {}]', target = '[{"tp"}, {}]', \
dtype = "int32"},
]
"""

HEAD = """
import sys
sys.path.insert(0, home)
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType
for name in [name for name in sys.modules if name.partition(".")[0] == "generated"]:
    del sys.modules[name]
from generated import load

random = np.random.default_rng(0)
bf16, devices = jnp.bfloat16, np.array(jax.devices())

def mesh(names, sizes, ids):
    return jax.sharding.Mesh(devices[ids].reshape(sizes), names)

def drawn(shape, dtype=bf16):
    return np.asarray(random.normal(size=shape) * 100).astype(dtype)

def alike(a, b):
    same = lambda x, y: np.asarray(x).tobytes() == np.asarray(y).tobytes()
    return jax.tree.all(jax.tree.map(same, a, b))

def said(function, *given, **more):
    try:
        function(*given, **more)
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]

trainer = mesh(("fsdp", "tp"), (4, 2), range(8))
more = {"interpret": True} if backend == "pallas_tpu" else {}
"""

APART = """
group = load("apart", backend)
server = mesh(("tp",), (4,), [8, 9, 10, 11])
wq, wk, norm, step = drawn((64, 48)), drawn((64, 48)), drawn(60, "float32"), np.int32(7)
given = {"layer0": {"wq": wq, "wk": wk, "norm": norm}, "step": step}
moved = group.unpad(group.reshard(group.pad(given), trainer, target_mesh=server, **more))
assert alike(moved, given), moved
listed = [wq, wk, norm, step]
moved = group.unpad(group.reshard(group.pad(listed), trainer, target_mesh=server, **more))
assert isinstance(moved, list) and alike(moved, listed)
flat = {"step": step, "layer0.norm": norm, "layer0_wk": wk, "layer0.wq": wq}
call = lambda x: group.reshard(x, trainer, target_mesh=server, **more)
assert alike(group.unpad(call(group.pad(flat))), flat)
assert said(jax.jit(call), group.pad(flat)).startswith("TypeError: reshard cannot run under jit")
print(max(group._HOST.wire_bytes()), sum(group._HOST.wire_bytes()))
"""

OVERLAPPING = """
group = load("overlapping", backend)
among = mesh(("tp",), (6,), [9, 2, 3, 0, 8, 11])
given = {"o": {"w": drawn((31, 24)), "v": drawn((31, 24))}}
moved = group.reshard(group.pad(given), trainer, target_mesh=among, **more)
assert alike(group.unpad(moved), given)
assert moved["o"]["w"].sharding == group.target_sharding(among)["o_w"]
print(max(group._HOST.wire_bytes()), sum(group._HOST.wire_bytes()))
"""

SAME = """
group = load("same", backend)
within = mesh(("tp",), (8,), range(8))
floats = {"wq": drawn((64, 48)), "wk": drawn((64, 48)), "wo": drawn((33, 50))}
floats["norm"] = drawn(60, "float32")
others = {"mask": random.random((16, 16)) > 0.5, "ids": drawn((16, 16), "int32")}

def move(floats):
    padded = group.pad({"a": {**floats, **others}})
    return group.unpad(group.reshard(padded, trainer, target_mesh=within, **more))["a"]

whole = jax.sharding.NamedSharding(within, jax.sharding.PartitionSpec())
assert alike(jax.jit(move, out_shardings=whole)(floats), {**floats, **others})
print(max(group._HOST.wire_bytes()), sum(group._HOST.wire_bytes()))
pads = group.pad({"a": {**floats, **others}})
for wrong in (
    [1, 2],
    {"a": {**pads["a"], "wz": 1}},
    {"a": {name: x for name, x in pads["a"].items() if name != "wo"}},
    {"a": {**pads["a"], "wq": pads["a"]["norm"]}},
    {"a": {**pads["a"], "wq": 3}},
):
    print(said(group.reshard, wrong, trainer, target_mesh=within))
turned = mesh(("tp",), (8,), range(1, 9))
for start in (within, trainer):
    print(said(group.reshard, pads, start, target_mesh=turned))
_, back = jax.vjp(move, floats)
weights = {name: drawn(x.shape, x.dtype) for name, x in floats.items()}
zeros = {name: np.zeros(x.shape, jax.dtypes.float0) for name, x in others.items()}
(found,) = back({**weights, **zeros})
assert alike(found, weights)
"""

COMPILED = """
from shardwright.codegen.moves.xla import received

host = load(NAME, backend)._HOST
given, program = host.compiled_for([jax.devices()[rank] for rank in host.ranks])
text = jax.jit(program).lower(given).compile().as_text()
totals, names = received(text, len(host.ranks))
assert totals == host.wire_bytes(), (totals, host.wire_bytes())
assert {*names} == {"collective-permute"}, names
print(max(totals), sum(totals))
"""

SAID = """\
ValueError: arrays: got 2, expected 6
ValueError: arrays: unknown name a.wz
ValueError: arrays: a_wo is missing
ValueError: a_wq: source array, as pad makes it: got (60,) of float32, expected (64, 48) of bfloat16
TypeError: a_wq: source array, as pad makes it: got int, expected an array of (64, 48) of bfloat16
ValueError: source mesh: got axes {'tp': 8}, expected {'fsdp': 4, 'tp': 2}
ValueError: target_mesh: got devices [1, 2, 3, 4, 5, 6, 7, 8], expected \
[0, 1, 2, 3, 4, 5, 6, 7], the devices of mesh in the same order
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the bundles and groups of the config."""
    folder = tmp_path_factory.mktemp("groups")
    (folder / "shardwright.toml").write_text(CONFIG)
    result = CliRunner().invoke(app, ["emit", str(folder / "shardwright.toml")])
    assert result.exit_code == 0, result.stderr
    return folder


def bytes_of(home: Path, name: str) -> str:
    """What the group's page says of bytes: those of the busiest device, and all."""
    lines = (home / "generated" / name / "README.md").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("Bytes received: "))
    words = line.replace(",", "").split()
    return f"{words[2]} {words[7]}\n"


def ran(program: str, home: Path, backend: str) -> str:
    """What a program prints, on some devices of the CPU."""
    return session().run(HEAD + program, home=str(home), backend=backend)


@pytest.mark.parametrize("backend", sampled(["jax_xla", "pallas_tpu"], "jax_xla"))
def test_to_other_devices(home: Path, backend: str) -> None:
    """In lists, dicts and nested ones."""
    assert ran(APART, home, backend) == bytes_of(home, "apart")


@pytest.mark.parametrize("backend", sampled(["jax_xla", "pallas_tpu"], "jax_xla"))
def test_to_some_of_the_devices(home: Path, backend: str) -> None:
    assert ran(OVERLAPPING, home, backend) == bytes_of(home, "overlapping")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax_xla"])
def test_within_a_jit(home: Path, backend: str) -> None:
    """What is wrong is named; cotangents go back as a group."""
    assert ran(SAME, home, backend) == bytes_of(home, "same") + SAID


@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("same", "apart")),
        "overlapping",
    ],
)
def test_the_compiled_program_moves_the_bytes_of_the_plan(home: Path, name: str) -> None:
    """Those of the collectives in its HLO, device by device."""
    program = COMPILED.replace("NAME", repr(name))
    assert ran(program, home, "jax_xla") == bytes_of(home, name)


def verified(home: Path, name: str, backend: str) -> tuple[str, str]:
    """What `verify` finds of a group's own module, after those of its members."""
    *_, report = reports(home / "generated" / name, backend)
    assert (report.name, report.backend) == (name, backend)
    return report.verdict, report.detail


@pytest.mark.exhaustive
@pytest.mark.parametrize("backend", ["jax_xla", "pallas_tpu"])
def test_they_are_verified(home: Path, backend: str) -> None:
    assert verified(home, "overlapping", backend) == ("ok", "")


def test_a_wrong_module_is_found(home: Path) -> None:
    """One that gives one tensor of a kind for the other."""
    path = home / "generated" / "apart" / "jax_xla.py"
    right, made = path.read_text(), "BUNDLES), KIND_OF)\n"
    assert made in right
    swapped = "lambda given, mesh: Group.stacked(_HOST, [given[1], given[0], *given[2:]], mesh)"
    path.write_text(right.replace(made, f"{made}_HOST.stacked = {swapped}\n"))
    verdict, detail = verified(home, "apart", "jax_xla")
    path.write_text(right)
    assert (verdict, detail.partition(":")[0]) == ("failed", "layer0_wq")


@pytest.mark.exhaustive
def test_groups_of_tpu_modules_compile(home: Path) -> None:
    """Ahead of time, in one program, and between stacks where one jit cannot have both meshes."""
    pytest.importorskip("libtpu")
    from shardwright.codegen.operations.bundles.compile import compile_bundles

    for name, topology in (("same", "v5e:2x4"), ("apart", "v5p:2x2x4")):
        *_, report = compile_bundles([home / "generated" / name], [topology], xla=False)
        assert (report.name, report.verdict, report.detail) == (name, "ok", "")
