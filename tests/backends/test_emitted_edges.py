"""Emitted modules where callers bring more than a plain mesh or a plain tensor."""

from __future__ import annotations

import importlib.util
import re
import socket
import warnings
from pathlib import Path
from types import ModuleType, SimpleNamespace

import jax
import pytest
from cases import random_reshard
from programs import output, started

from shardwright.codegen import registry
from shardwright.codegen.backends.base import Request
from shardwright.codegen.moves import plan
from shardwright.codegen.operations.emit.modules import parts, reverse
from shardwright.ir import InputError, Mesh, Reshard

GRID = Mesh({"x": 4, "y": 2})
SUB_AXES = Reshard(
    (64, 96),
    "float32",
    GRID.sharding('[{"x"}, {}]'),
    GRID.sharding('[{"x":(1)2}, {"x":(2)2, "y"}]'),
)
OTHER_AXES = Reshard(
    (8, 16), "float32", GRID.sharding('[{"x"}, {"y"}]'), Mesh({"t": 8}).sharding('[{}, {"t"}]')
)
SAME_AXES = Reshard(
    (8, 16), "float32", GRID.sharding('[{"x"}, {"y"}]'), GRID.sharding('[{"y"}, {"x"}]')
)
REVERSED = Reshard(
    (8, 4),
    "float32",
    GRID.sharding('[{"x"}, {"y"}]'),
    Mesh({"x": 4, "y": 2}, list(range(7, -1, -1))).sharding('[{"x"}, {"y"}]'),
)

IN_PIECES = Reshard(
    (28,),
    "float32",
    Mesh({"x": 2, "y": 4}, [6, 7, 4, 0, 1, 2, 3, 5]).sharding('[{"y"}]'),
    Mesh({"x": 2, "y": 2}, [4, 2, 7, 3]).sharding('[{"y", "x"}]'),
)


def written(reshard: Reshard, backend: str, folder: Path) -> Path:
    """The module of a reshard, on disk."""
    path = folder / f"{backend}.py"
    path.write_text(parts(plan(reshard), backend, "shardwright emit", single_file=True)[0].text)
    return path


def loaded(reshard: Reshard, backend: str, folder: Path) -> ModuleType:
    """The module of a reshard, imported."""
    spec = importlib.util.spec_from_file_location("emitted", written(reshard, backend, folder))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MESHES = """
import importlib.util, sys
import jax, numpy as np
from jax.sharding import AxisType, Mesh

spec = importlib.util.spec_from_file_location("emitted", sys.argv[1])
m = importlib.util.module_from_spec(spec)
spec.loader.exec_module(m)
devices = np.array(jax.devices()[:8])
tensor = np.arange(np.prod(m.SHAPE)).astype(m.DTYPE).reshape(m.SHAPE)


def moved(x, mesh):
    return m.reshard(x, mesh, interpret=True)


def right(y):
    return np.array_equal(m.unpad(jax.device_put(y, jax.devices()[0])), tensor)


for kind in (AxisType.Auto, AxisType.Explicit):
    mesh = Mesh(devices.reshape(4, 2), ("x", "y"), axis_types=(kind, kind))
    elsewhere = Mesh(devices, ("d",))
    x = jax.device_put(np.asarray(m.pad(tensor)), m.source_sharding(mesh))
    assert right(moved(x, mesh))
    assert right(moved(np.asarray(x), mesh))
    assert right(moved(jax.device_put(np.asarray(x), jax.devices()[0]), mesh))
    for context in (mesh, elsewhere):
        with jax.set_mesh(context):
            y = moved(x, mesh)
            try:
                z = jax.jit(lambda x: moved(x, mesh))(x)
            except ValueError as error:
                print(error)
                z = y
        wanted = m.target_sharding(mesh)
        assert all(found.sharding.is_equivalent_to(wanted, 2) and right(found) for found in (y, z))
"""
MIXED = (
    "the result is on a mesh of axes {}, which a traced program cannot mix with the Explicit axes "
    "that are set, {{'x': 4, 'y': 2}}: if the axes are the same, pass the mesh that is set as "
    "target_mesh; else call reshard(x, mesh) outside jit, on a concrete array, or trace without "
    "jax.set_mesh\n"
)


OF_SUB_AXES = "{'x:(1)2': 2, 'x:(2)2': 2, 'y': 2}"


@pytest.mark.parametrize(
    ("reshard", "said"),
    [
        pytest.param(SAME_AXES, "", marks=pytest.mark.exhaustive),
        pytest.param(OTHER_AXES, MIXED.format("{'t': 8}"), marks=pytest.mark.exhaustive),
        pytest.param(SUB_AXES, MIXED.format(OF_SUB_AXES), marks=pytest.mark.slow),
        pytest.param(reverse(OTHER_AXES), "", marks=pytest.mark.exhaustive),
        pytest.param(reverse(SUB_AXES), "", marks=pytest.mark.exhaustive),
    ],
    ids=["same axes", "other axes", "sub-axes", "from other axes", "from sub-axes"],
)
def test_any_mesh_may_be_set_and_its_axes_typed(
    reshard: Reshard, said: str, tmp_path: Path
) -> None:
    """A result on a refined mesh cannot be in a program with Explicit axes."""
    pytest.importorskip("jax")
    assert output(started(MESHES, 9, written(reshard, "pallas_tpu", tmp_path))) == said


PROCESSES = """
import importlib.util, sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

path, address, number = sys.argv[1:]
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(address, 2, int(number))
spec = importlib.util.spec_from_file_location("emitted", path)
m = importlib.util.module_from_spec(spec)
spec.loader.exec_module(m)
# The interpreter knows one process alone: in place of the kernel, what it does to these shards.
m._HOST.stacked = lambda stacked, union, interpret, collective_id: jax.jit(
    lambda shards: jnp.flip(shards, 0), out_shardings=NamedSharding(union, P("device"))
)(stacked)
devices = np.array(jax.devices())
mesh, target_mesh = (Mesh(d.reshape(4, 2), ("x", "y")) for d in (devices, devices[::-1]))
tensor = np.arange(np.prod(m.SHAPE)).astype(m.DTYPE).reshape(m.SHAPE)[::-1]
x = jax.make_array_from_callback(m.SHAPE, m.source_sharding(mesh), lambda at: tensor[at])
y = m.reshard(x, mesh, target_mesh=target_mesh)
assert y.sharding == m.target_sharding(target_mesh)
assert len(y.addressable_shards) == 4
assert all(np.array_equal(shard.data, tensor[shard.index]) for shard in y.addressable_shards)
"""


def test_two_meshes_over_two_processes(tmp_path: Path) -> None:
    """A process has only the shards of its own devices."""
    pytest.importorskip("jax")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    path = written(REVERSED, "pallas_tpu", tmp_path)
    for process in [started(PROCESSES, 4, path, address, number) for number in range(2)]:
        output(process)


def test_shards_of_one_kind_of_device(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    module = loaded(SAME_AXES, "triton_gpu", tmp_path)
    shards = [torch.ones(module.source_shape(i)) for i in range(8)]
    shards[3] = shards[3].to("meta")
    message = "got source shards on ['cpu', 'meta'], expected all on GPUs or all on CPU"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        module.reshard_local(shards)


def test_a_gpu_out_of_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    module = loaded(SAME_AXES, "triton_gpu", tmp_path)
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda reader, owner: False)
    message = "^cuda:0 cannot read the memory of cuda:1: use `reshard` in a process group$"
    with pytest.raises(ValueError, match=message):
        module.let_read(torch.device("cuda", 0), torch.device("cuda", 1))


@pytest.mark.parametrize(
    ("backends", "device"),
    [("cuda:nccl", "cuda:2"), ("cpu:gloo,cuda:nccl", "cuda:2"), ("cpu:gloo,cuda:gloo", "cpu")],
)
def test_where_a_rank_without_a_shard_receives(
    backends: str, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    module = loaded(SAME_AXES, "triton_gpu", tmp_path)
    monkeypatch.setattr(torch.distributed, "get_backend_config", lambda group: backends)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 2)
    outside = len(module.SOURCE_IDS)
    assert str(module.check_rank(module._HOST, None, None, outside, None, False)) == device


@pytest.mark.parametrize("seed", [3, 8, 21])
def test_kernels_compile_for_positions_that_triton_makes_constants(
    seed: int, tmp_path: Path
) -> None:
    """A launch turns an integer of value 1 into a constant of the kernel."""
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from shardwright.codegen.backends.triton_gpu.compile import launch

    module = loaded(random_reshard(seed), "triton_gpu", tmp_path)
    names = module.pull_kernel.arg_names
    signature = {name: launch.types(module).get(name, "constexpr") for name in names}
    constants = launch.constants(module)
    places = [name for name in ("receiver", "me") if name in names]
    for ones in ({place: 1} for place in places):
        source = ASTSource(
            fn=module.pull_kernel,
            signature=signature | dict.fromkeys(ones, "constexpr"),
            constexprs={(names.index(k),): v for k, v in (constants | ones).items()},
        )
        assert triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["cubin"]


@pytest.mark.parametrize("backend", registry.NAMES)
def test_shards_that_pass_32_bits_when_padded(backend: str) -> None:
    """Every extent fits, but the end of the last shard, before it is cut off, does not."""
    mesh = Mesh({"x": 4})
    made = [
        plan(Reshard((rows, 4), "int8", mesh.sharding('[{"x"}, {}]'), mesh.sharding('[{}, {"x"}]')))
        for rows in (2**31 - 1, 2**31 - 2**21)
    ]
    with pytest.raises(InputError) as caught:
        registry.backend(backend).refuse(made[0])
    assert str(caught.value) == (
        f"shape: padded shards have indices up to 2147483648, which {backend} cannot compute in 32 "
        "bits\n"
        "got: 2147483647x4\n"
        "expected: padded shards that end at or below 2146435071"
    )
    registry.backend(backend).refuse(made[1])


@pytest.mark.parametrize(
    ("shape", "form", "times"), [((1024, 1024), "direct", 1.0), ((1000, 1000), "windows", 1.2)]
)
def test_a_module_says_what_it_costs(shape: tuple[int, ...], form: str, times: float) -> None:
    """Bytes on the wire with padding: none of aligned tiles, little of others."""
    places = GRID.sharding('[{"x"}, {"y"}]'), GRID.sharding('[{"y"}, {"x"}]')
    planned = plan(Reshard(shape, "float32", *places))
    text = registry.backend("pallas_tpu").render(Request(planned, "shardwright emit"))
    said = re.search(r"^Form: (\w+);", text, re.M)
    assert said is not None
    assert said[1] == form
    wire = re.search(r"^WIRE_BYTES = (\d+)  # ", text, re.M)
    assert wire is not None
    assert 1 <= int(wire[1]) / planned.traffic.received_max <= times


COMPILED = """
import importlib.util, re, sys
import jax, numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh

spec = importlib.util.spec_from_file_location("emitted", sys.argv[1])
m = importlib.util.module_from_spec(spec)
spec.loader.exec_module(m)
devices = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x4").devices
mesh = Mesh(np.array(devices).reshape(4, 2), ("x", "y"))
x = jax.ShapeDtypeStruct(m.PADDED_SOURCE_SHAPE, m.DTYPE, sharding=m.source_sharding(mesh))
donated = jax.jit(lambda x: m.reshard(x, mesh), donate_argnums=0)
lines = [line.strip() for line in donated.lower(x).compile().as_text().splitlines()]
# The first kernel is the one that others write to; what it stages may be put together by another.
call = next(line for line in lines if 'custom_call_target="tpu_custom_call"' in line)
operand = re.search(r"custom-call[(](%[^ ,)]+)", call)[1]
(made,) = (line for line in lines if line.startswith(operand + " = "))
print(*(line.split(" = ")[1].split(" ")[0] for line in (made, call)))
"""


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        pytest.param(
            (1024, 1024),
            "f32[256,512]{1,0:T(8,128)} f32[512,256]{1,0:T(8,128)}",
            marks=pytest.mark.slow,
        ),
        ((1000, 1000), "f32[250,500]{1,0:T(8,128)} f32[512,256]{1,0:T(8,128)}"),
    ],
)
def test_the_kernel_has_its_arrays_in_hbm(
    shape: tuple[int, ...], said: str, tmp_path: Path
) -> None:
    """XLA would place small ones in VMEM, S(1), whatever the kernel's block specs say."""
    pytest.importorskip("libtpu")
    places = GRID.sharding('[{"x"}, {"y"}]'), GRID.sharding('[{"y"}, {"x"}]')
    path = written(Reshard(shape, "float32", *places), "pallas_tpu", tmp_path)
    chip = {"TPU_ACCELERATOR_TYPE": "v5litepod-8", "TPU_WORKER_HOSTNAMES": "localhost"}
    chip |= {"TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
    chip["SHARDWRIGHT_FAR_SENDS"] = "1"
    assert output(started(COMPILED, 1, path, **chip)) == said + "\n"


@pytest.mark.parametrize(
    "reshard", [SAME_AXES, REVERSED, IN_PIECES], ids=["same order", "reversed", "in pieces"]
)
def test_an_error_where_v5e_does_not_send_directly(
    reshard: Reshard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pairs of devices that are neither 1, 2 nor 4 apart along one axis of a 2x4 grid; a
    warning for those who ask for one."""
    pytest.importorskip("jax")
    module = loaded(reshard, "pallas_tpu", tmp_path)
    transfers = plan(reshard).transfers()
    remote = transfers.sender != transfers.receiver
    pairs = set(zip(transfers.sender[remote], transfers.receiver[remote], strict=True))
    coords = [(rank % 2, rank // 2) for rank in range(8)]
    apart = [tuple(abs(a - b) for a, b in zip(coords[s], coords[r], strict=True)) for s, r in pairs]
    far = sum(sorted(hops) not in ([0, 1], [0, 2]) for hops in apart)
    assert far > 0
    devices = [
        SimpleNamespace(platform="tpu", device_kind="TPU v5 lite", coords=at) for at in coords
    ]
    said = f"a v5e cannot send directly between {far} of the {len(pairs)} pairs of devices"
    with pytest.raises(ValueError, match=f"^mesh: {said} .*; SHARDWRIGHT_FAR_SENDS=1 in the"):
        module._HOST.program.settings(devices, False, None)
    monkeypatch.setenv("SHARDWRIGHT_FAR_SENDS", "1")
    with pytest.warns(UserWarning, match=f"^{said}"):
        module._HOST.program.settings(devices, False, None)
    monkeypatch.delenv("SHARDWRIGHT_FAR_SENDS")
    for device in devices:
        device.device_kind = "TPU v6 lite"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module._HOST.program.settings(devices, False, None)


@pytest.mark.parametrize("backend", ["pallas_tpu", "jax_xla"])
def test_what_is_no_array_and_no_mesh(backend: str, tmp_path: Path) -> None:
    module = loaded(SAME_AXES, backend, tmp_path)
    mesh = jax.sharding.AbstractMesh((4, 2), ("x", "y"))
    calls = {
        "source array, as pad(x) makes it: got list, expected an array of (8, 16) of float32": (
            lambda: module.reshard([1.0], mesh)
        ),
        "tensor: got NoneType, expected an array of (8, 16) of float32": lambda: module.pad(None),
        "source mesh: got AbstractMesh, expected a jax.sharding.Mesh": lambda: (
            module.source_sharding(mesh)
        ),
        "target mesh: got NoneType, expected a jax.sharding.Mesh": lambda: module.target_sharding(
            None
        ),
    }
    for said, call in calls.items():
        with pytest.raises(TypeError) as caught:
            call()
        assert str(caught.value) == said
