"""Groups: the weights of a layer in one launch a device, and in one exchange among processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from every_feature import EVERY
from gloo_group import printed, run_group
from gpu_cases import layer
from test_gpu_processes import sides
from typer.testing import CliRunner

from shardwright.codegen.checks.load import load
from shardwright.codegen.cli import app
from shardwright.codegen.moves import plan
from shardwright.codegen.operations.bundles.check import check
from shardwright.codegen.operations.emit.emit import emit
from shardwright.codegen.operations.emit.group import group_files
from shardwright.codegen.operations.emit.write import write_bundles
from shardwright.codegen.spec.group import Group
from shardwright.ir import InputError, Mesh, Reshard

pytest.importorskip("torch")
pytest.importorskip("triton")

Refits = dict[str, tuple[dict[str, Reshard], Path]]
APART, AMONG = (4, 5, 6, 7), (2, 3, 0, 1)


def written(reshards: dict[str, Reshard], folder: Path) -> Path:
    """The bundles of some tensors and the module of a group of all."""
    for name, reshard in reshards.items():
        emit(reshard, ("triton_gpu",), "direct", features=EVERY).write(folder / name)
    group = Group("layer", tuple(reshards))
    plans = {name: plan(reshard) for name, reshard in reshards.items()}
    files = group_files(group, plans, ("triton_gpu",))
    write_bundles(folder, (), ((group, files),))
    return folder / "layer" / "triton_gpu.py"


@pytest.fixture(scope="module")
def refits(tmp_path_factory: pytest.TempPathFactory) -> Refits:
    """The weights of a layer, and the module of their group: to other devices, among the same."""
    found = {}
    for name, ids in (("apart", APART), ("among", AMONG)):
        reshards = layer(*ids)
        assert len(reshards) > 20
        found[name] = reshards, written(reshards, tmp_path_factory.mktemp(name))
    return found


LOCAL = """
import json, sys
from pathlib import Path
import torch
from shardwright.codegen.backends.triton_gpu.verify.quick import quick_launches
from shardwright.codegen.checks.load import load

path, cases = sys.argv[1:]
m = load(Path(path))
own, launches = m._HOST, []
listed = sys.modules[m.__name__.split(".")[0] + "._support.triton_listed"].Listed
copy = listed.copy
listed.copy = lambda self, *args: (launches.append(self), copy(self, *args))[1]


def tensor(name, device, text, shape):
    raw = bytearray.fromhex(text)
    return torch.frombuffer(raw, dtype=own.members[name].dtype).reshape(shape).clone()


given = json.loads(Path(cases).read_text())
shards = {
    name: [
        tensor(name, d, held[str(d)], own.members[name].source_shape(d))
        for d in sorted(own.exchange.source.ids)
    ]
    for name, (held, _) in given.items()
}
# A shard and a result that begin where 16 bytes cannot be moved at once.
moved = torch.empty(shards["q_proj"][0].numel() + 1, dtype=torch.bfloat16)[1:]
shards["q_proj"][0] = moved.view(shards["q_proj"][0].shape).copy_(shards["q_proj"][0])
with quick_launches():
    results = m.reshard_local(shards)
assert len(launches) == len(own.exchange.target.ids), len(launches)
for name, (_, wanted) in given.items():
    for device, result in zip(sorted(own.exchange.target.ids), results[name], strict=True):
        found = bytes(result.reshape(-1).view(torch.uint8).tolist()).hex()
        assert found == wanted[str(device)], (name, device)
with quick_launches():
    again = m.reshard_local(shards, out=results)
assert all(a is b for name in results for a, b in zip(again[name], results[name], strict=True))
print(len(launches))
"""


@pytest.mark.parametrize(
    ("which", "interpreted"),
    [pytest.param("apart", "1", marks=pytest.mark.slow), ("among", "0")],
)
def test_one_launch_a_device(refits: Refits, which: str, interpreted: str, tmp_path: Path) -> None:
    reshards, module = refits[which]
    cases = tmp_path / "cases.json"
    cases.write_text(json.dumps({name: sides(reshard) for name, reshard in reshards.items()}))
    words = [str(module), str(cases)]
    assert printed(LOCAL, words, tmp_path, interpreted=interpreted == "1") == "8\n"


def test_it_checks_itself(tmp_path: Path) -> None:
    reshards = {name: layer(*AMONG)[name] for name in ("q_proj", "o_proj", "norm1", "conv")}
    written(reshards, tmp_path / "bundles")
    said = "all sends match receives and fill every target shard"
    elements = 2 * 64 * 64 + 64 + 8 * 3 * 4 * 16
    moved = f"ok: {said}; {elements} elements moved by the kernel and by an exchange\n"
    assert checked(tmp_path) == (moved, "", 0)
    path = tmp_path / "bundles" / "conv" / "triton_gpu.py"
    right = path.read_text()
    instead = "def senders(receiver):\n    return []\n\n\ndef right(receiver):"
    path.write_text(right.replace("def senders(receiver):", instead))
    wrong = "conv, device 2: pieces have 0 elements, the target shard 384"
    assert printed(CHECK, [], tmp_path).strip() == wrong


CHECK = """
import bundles.layer.triton_gpu as module
try:
    print(module._HOST.self_check())
except SystemExit as error:
    print(error)
"""


def checked(folder: Path) -> tuple[str, str, int]:
    """What the self-check of a group prints, and its exit code."""
    run = subprocess.run(
        [sys.executable, "-m", "bundles.layer.triton_gpu"],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
    )
    return run.stdout, run.stderr, run.returncode


@pytest.mark.parametrize(
    ("which", "interpreted"),
    [("apart", "0"), pytest.param("among", "1", marks=pytest.mark.slow)],
)
def test_one_exchange_a_rank(refits: Refits, which: str, interpreted: str, tmp_path: Path) -> None:
    reshards, module = refits[which]
    given = {name: sides(reshard) for name, reshard in reshards.items()}
    case = {"task": "grouped", "module": str(module)}
    case["members"] = {name: source for name, (source, _) in given.items()}
    world = plan(reshards["q_proj"]).devices
    ranks = [
        lines[0] for lines in run_group(world, [case], tmp_path, interpreted=interpreted == "1")
    ]
    for rank in ranks:
        wanted = {name: target.get(rank["device"]) for name, (_, target) in given.items()}
        assert rank["results"] == wanted
        assert rank["kept"]
        assert len(rank["sent"]) == 1
        assert rank["launches"] <= 3  # pack, keep the own, unpack
        assert rank["said"].startswith("ValueError: rank 1: norm1: source shard of device 1: got")
    total = sum(plan(reshard).traffic.received_total for reshard in reshards.values())
    assert sum(rank["sent"][0] for rank in ranks) == total


def test_the_kernel_moves_sixteen_bytes_at_once(refits: Refits) -> None:
    import triton
    from test_gpu_kernel import loaded
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from shardwright.codegen.backends.triton_gpu.compile import group_launch, resources

    module = loaded(refits["apart"][1])
    kernel, fixed = module._HOST.kernel, group_launch.constants(module)
    names = kernel.arg_names
    for target, kind in (
        (GPUTarget("cuda", 90, 32), "ptx"),
        (GPUTarget("hip", "gfx942", 64), "amdgcn"),
    ):
        text = triton.compile(
            ASTSource(
                fn=kernel,
                signature={name: group_launch.TYPES.get(name, "constexpr") for name in names},
                constexprs={(names.index(name),): value for name, value in fixed.items()},
                attrs={(k,): [["tt.divisibility", 16]] for k in range(4)},
            ),
            target=target,
        ).asm[kind]
        # The fields of the tile have 8 bytes each.
        assert set(resources.widths(text, "ld")) - {8} == {16, fixed["UNITS"].width}
        assert set(resources.widths(text, "st")) == {16, fixed["UNITS"].width}
        assert resources.divisions(text)[0] == 0


def test_lazily_negated_tensors_of_a_group_are_refused(tmp_path: Path) -> None:
    """A source shard and a tensor to fill, of one process; those of many are checked alike."""
    import torch

    mesh = Mesh({"x": 2})
    sides = mesh.sharding('[{"x"}]'), mesh.sharding("[{}]")
    module = load(written({"a": Reshard((4,), "float32", *sides)}, tmp_path))
    shards, out = ([torch.ones(size) for _ in range(2)] for size in (2, 4))
    negated = "got a lazily negated view, expected its resolve_neg()"
    for given, to, what in (
        ([shards[0], torch._neg_view(shards[1])], out, "source shard of device 1"),
        (shards, [torch._neg_view(out[0]), out[1]], "out of device 0"),
    ):
        with pytest.raises(ValueError, match="negated") as caught:
            module.reshard_local({"a": given}, out={"a": to})
        assert str(caught.value) == f"a: {what}: {negated}"


def test_a_member_emitted_anew(tmp_path: Path) -> None:
    from test_gpu_kernel import loaded

    reshards = {name: layer(*APART)[name] for name in ("q_proj", "norm1")}
    module = written(reshards, tmp_path)
    emit(layer(*APART)["k_proj"], ("triton_gpu",), features=EVERY).write(tmp_path / "q_proj")
    with pytest.raises(
        ImportError, match=r"q_proj.triton_gpu has plan \w+, expected \w+: emit both"
    ):
        loaded(module)
    (tmp_path / "q_proj" / "triton_gpu.py").unlink()
    said = "q_proj.triton_gpu is missing: a group needs the bundles of its tensors next to it"
    with pytest.raises(ImportError, match=said):
        loaded(module)


def test_modules_are_formatted(refits: Refits) -> None:
    from test_gpu_kernel import ruff_finds_nothing

    ruff_finds_nothing(refits["apart"][1].parent)


def test_members_on_other_devices() -> None:
    plans = {"a": plan(layer(*APART)["norm1"]), "b": plan(layer(*AMONG)["norm1"])}
    with pytest.raises(InputError) as caught:
        group_files(Group("both", ("a", "b")), plans, ("triton_gpu",))
    assert str(caught.value) == (
        "members: the members of a group must be on the same devices in the same order\n"
        "got: the target mesh of b on devices 2, 3, 0, 1\n"
        "expected: devices 4, 5, 6, 7, as for a"
    )


TABLES = """\
[[reshard]]
name = "up"
mesh = "x=2"
shape = [6, 4]
dtype = "float32"
source = '[{"x"}, {}]'
target = '[{}, {"x"}]'

[[reshard]]
name = "down"
mesh = "x=2"
shape = [5]
dtype = "int8"
source = '[{"x"}]'
target = '[{}]'

[[reshard]]
name = "other"
mesh = "x=3"
shape = [5]
dtype = "int8"
source = '[{"x"}]'
target = '[{}]'

[[group]]
name = "both"
members = ["up", "down"]
"""


def command(*words: object) -> tuple[int, str]:
    """Exit code and what is printed, on stderr if that fails."""
    result = CliRunner().invoke(app, [*map(str, words), "--backends", "triton_gpu"])
    return result.exit_code, (result.stderr if result.exit_code else result.stdout)


def test_a_file_with_a_group(tmp_path: Path) -> None:
    listed, root = tmp_path / "reshards.toml", tmp_path / "out"
    listed.write_text(TABLES)
    code, said = command("emit", listed, "-o", root)
    assert (code, said.splitlines()[-1]) == (0, f"{root}/both: 3 files written")
    assert sorted(path.name for path in (root / "both").iterdir()) == [
        "README.md",
        "__init__.py",
        "triton_gpu.py",
    ]
    assert check(root) == ()
    # Made again by the command that its files state, with its members; alone, and by the manifest.
    (root / "both" / "triton_gpu.py").unlink()
    again = command("emit", root / "manifest.json", "--name", "both", "-o", root)
    unchanged = [f"{root}/{name}: unchanged" for name in ("down", "up")]
    assert again == (0, "\n".join([*unchanged, f"{root}/both: 1 file written", ""]))
    command("emit", listed, "--name", "other", "-o", root)
    assert check(root) == ()
    (root / "both" / "README.md").write_text("mine")
    problems = [(problem.path, problem.rule) for problem in check(root)]
    assert problems == [("both/README.md", "edited by hand")]
    assert [problem.path for problem in check(root / "both")] == ["both/README.md"]


def test_a_member_of_another_shape(tmp_path: Path) -> None:
    """The group notes that it is not what would be emitted now."""
    listed, root = tmp_path / "reshards.toml", tmp_path / "out"
    listed.write_text(TABLES)
    command("emit", listed, "-o", root)
    listed.write_text(TABLES.replace("shape = [5]", "shape = [7]").partition("[[group]]")[0])
    command("emit", listed, "-o", root)
    paths = {problem.path for problem in check(root)}
    assert paths == {"both/README.md", "both/triton_gpu.py"}


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (
            'name = "both"\nmembers = ["up", "left"]',
            "line 27, group 'both', members: no such reshard",
        ),
        (
            'name = "both"\nmembers = []',
            "line 27, group 'both', members: the members of a group must be a list of reshard "
            "names",
        ),
        (
            'name = "both"\nmembers = ["up", "up"]',
            "line 27, group 'both', members: a member must occur only once in a group",
        ),
        ('members = ["up"]', "line 25, name: a group must have a name"),
        (
            'name = "Up"\nmembers = ["up"]',
            "line 26, name: the names of two operations must not differ only in case",
        ),
        (
            'name = "both"\nmembers = ["up"]\nmesh = "x=2"',
            "line 28, group 'both', mesh: unknown key",
        ),
        (
            'name = "both"\nmembers = ["up", "other"]',
            "line 27, group 'both', members: the members of a group must be on the same devices "
            "in the same order",
        ),
    ],
)
def test_groups_that_cannot_be(table: str, said: str, tmp_path: Path) -> None:
    listed = tmp_path / "reshards.toml"
    listed.write_text(TABLES.partition("[[group]]")[0] + "[[group]]\n" + table + "\n")
    code, found = command("emit", listed, "-o", tmp_path / "out")
    assert (code, found.splitlines()[0]) == (2, f"error: {listed}, {said}")
    assert not (tmp_path / "out").exists()


def test_members_without_a_backend_in_common(tmp_path: Path) -> None:
    path = tmp_path / "two.toml"
    one = (
        '[[reshard]]\nname = "w"\nmesh = "x=4"\nshape = [8, 16]\ndtype = "float32"\n'
        "source = '[{\"x\"}, {}]'\ntarget = '[{}, {\"x\"}]'\n"
    )
    other = one.replace('"w"', '"v"') + 'backends = ["jax_xla"]\n'
    path.write_text(one + other + '[[group]]\nname = "all"\nmembers = ["w", "v"]\n')
    result = CliRunner().invoke(app, ["emit", str(path), "-o", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert result.stderr == (
        f"error: {path}, line 18, group 'all', members: "
        "the members of a group must have a backend in common\n"
        '  members = ["w", "v"]\n'
        "  ^^^^^^^^^^^^^^^^^^^^\n"
        "got: jax_xla; pallas_tpu, triton_gpu\n"
        "expected: one of pallas_tpu, triton_gpu, jax_xla for all\n"
    )
    assert not (tmp_path / "out").exists()
