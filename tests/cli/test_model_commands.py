"""Commands on a model: planned, shown, emitted, checked and verified, with a fault too."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from commands import run
from strategies import exactly, message

import shardwright as sw
from shardwright.codegen.spec.config import read_config

CONFIG = """\
[mesh]
stage0 = '<["a"=2], device_ids=[0, 1]>'
stage1 = '<["a"=2], device_ids=[2, 3]>'

[[model]]
name = "stages"
mesh = "stage0"
target_mesh = '<["tp"=4], device_ids=[4, 5, 6, 7]>'
dtype = "bfloat16"
tensors = "layers.toml"
target = "_[{tp}]"

[model.source]
"layer0.*" = "_[{a}]"
"layer1.*" = { layout = "_[{a}]", mesh = "stage1" }
"""
SECOND = """
[[model]]
name = "second"
mesh = "stage0"
dtype = "bfloat16"
tensors = { a = [4] }
target = "_"
[model.source]
a = "_"
b = "_"
"""
TENSORS = """\
[tensors]
"layer{0,1}.w" = [64, 64]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a config of a model."""
    (tmp_path / "shardwright.toml").write_text(CONFIG)
    (tmp_path / "layers.toml").write_text(TENSORS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_commands(folder: Path) -> None:
    planned = run("plan").out
    assert "received by the busiest device 4,096 bytes, the least possible\n" in planned
    assert "proved: every element of every target buffer is written once" in planned
    assert json.loads(run("plan", "--json").out)["bytes"]["total"] == 16384
    run("emit")
    assert run("check").out.startswith("generated: identical to a new emission")
    assert run("show").out == (folder / "generated/stages/README.md").read_text()
    listed = run("emit", "generated/manifest.json", "-o", "again").out
    assert "again/stages: 7 files written" in listed
    run("emit", "--backends", "jax_xla", "-o", "one")
    assert not (folder / "one/stages/triton_gpu.py").exists()
    for file in ("model.json", "plan.json", "triton_gpu.py", "jax_xla.py"):
        first, second = (folder / each / "stages" / file for each in ("generated", "again"))
        assert first.read_text() == second.read_text()
    data = folder / "generated/stages/model.json"
    text = data.read_text()
    data.write_text(text.replace("[1,3,0,1024,0]", "[1,3,0,1023,0]"))
    assert data.read_text() != text
    failed = run("verify")
    assert failed.code == 1
    assert "model.json: layer0.w: a loop leaves its part" in failed.out


@pytest.mark.slow
def test_modules_are_run(folder: Path) -> None:
    """A fault in the support modules, which no data shows, is found."""
    run("emit")
    verified = run("verify")
    assert verified.code == 0, verified.out
    assert "stages triton_gpu, jax_xla: model.json proved, 8,192 elements\n" in verified.out
    support = folder / "generated/_support/model_boxes.py"
    whole = support.read_text()
    support.write_text(whole.replace("starts = moved.starts[0], moved", "starts = 0, moved"))
    assert support.read_text() != whole
    wrong = run("verify", "--backends", "triton_gpu")
    assert wrong.code == 1
    assert "device 5, buffer layer0.w" in wrong.out


def test_mistakes_say_the_file_and_the_table(folder: Path) -> None:
    """Mistakes that planning finds too; flags that no model takes are refused."""
    said = run("plan", "--topology", "v5e:2x4").err
    assert said.startswith("error: --topology: a model does not take this option\n"), said
    config = folder / "shardwright.toml"
    config.write_text(CONFIG.replace('"layer0.*" = "_[{a}]"', '"layer0.*" = "_[{b}]"'))
    where = "error: shardwright.toml, line 13, model 'stages', source: layer0.w: an axis must exist"
    for command in ("plan", "emit"):
        assert run(command).err.startswith(where), run(command).err
    config.write_text(CONFIG.replace('"layer0.*" = "_[{a}]"', '"layer0.*" = "_[{a"'))
    said = run("plan").err
    assert said.startswith(
        "error: shardwright.toml, line 14, model 'stages', source: layer0.*: "
    ), said
    assert '  "layer0.*" = "_[{a"\n  ^^^' in said
    config.write_text(f"{CONFIG}{SECOND}")
    said = run("plan", "second").err
    assert "line 25, model 'second', source: a rule must match" in said, said
    config.write_text(CONFIG.replace('"layer0.*"', '"layr0.*"'))
    said = run("plan").err
    assert "model 'stages', source: a rule must match a tensor; did you mean layer*.w?" in said, (
        said
    )


def test_in_python(folder: Path) -> None:
    """An emitted plan is that of the config; a learned layout in a file is a side."""
    (said,) = read_config("shardwright.toml").models
    weights = sw.sync(said.model(), *said.rules(), memory_limit=said.memory_limit)
    sw.emit(weights.plan).write("mine/stages")
    run("emit")
    for file in ("model.json", "plan.json"):
        mine, emitted = (folder / each / "stages" / file for each in ("mine", "generated"))
        assert mine.read_text() == emitted.read_text()
    stored = sw.Stored("tp=2", {"a": (4, 4)}, "a[{tp}]", "bfloat16")
    (folder / "learned.toml").write_text(str(stored))
    (folder / "shardwright.toml").write_text(
        '[[model]]\nname = "a"\nmesh = "tp=2"\ndtype = "bfloat16"\ntensors = { a = [4, 4] }\n'
        'source = "learned.toml"\ntarget = "_"\n'
    )
    assert "received by all devices        32 bytes" in run("plan").out


def test_a_learned_layout_goes_to_the_devices_of_the_mesh(folder: Path) -> None:
    """Positions of the file's mesh are those of a given mesh with its axes."""
    stored = sw.Stored('<["tp"=2], device_ids=[3, 2]>', {"a": (4, 4)}, "a[{tp}]", "bfloat16")
    (folder / "learned.toml").write_text(str(stored))
    head = '[[model]]\nname = "a"\ntensors = {a = [4, 4]}\n'
    to_file = head + 'mesh = "fsdp=4"\nsource = "_[{fsdp}]"\ntarget = "learned.toml"\n'
    from_file = head + 'target_mesh = "fsdp=4"\nsource = "learned.toml"\ntarget = "_[{fsdp}]"\n'
    dtype, placed = 'dtype = "bfloat16"\n', '<["tp"=2], device_ids=[5, 4]>'

    def ids(text: str, side: int) -> list[int]:
        (folder / "shardwright.toml").write_text(text + dtype)
        (said,) = read_config("shardwright.toml").models
        return list(said.rules()[side].mesh.device_ids)

    assert ids(to_file, 1) == [3, 2]
    assert ids(f"{to_file}target_mesh = '{placed}'\n", 1) == [5, 4]
    assert ids(f"{from_file}mesh = '{placed}'\n", 0) == [5, 4]
    assert ids(from_file + 'mesh = "tp=2"\n', 0) == [0, 1]
    said = message(lambda: ids(to_file + 'target_mesh = "zz=2"\n', 1))
    assert (
        "model 'a', target_mesh: the target_mesh must have the same axes and sizes as the mesh"
        in said
    )
    assert 'expected: <["tp"=2], device_ids=[3, 2]>, with any device_ids' in said
    assert (
        "line 7, model 'a', mesh: the mesh must have the same axes and sizes as the mesh in learned"
        in (message(lambda: ids(from_file + 'mesh = "fsdp=4"\n', 0)))
    )
    dtype = 'dtype = "float32"\n'
    said = message(lambda: ids(to_file, 1))
    assert "model 'a', target: learned.toml, a: a stored layout must have the shapes and" in said
    assert said.endswith("got: bfloat16[4, 4]\nexpected: float32[4, 4]")


def test_a_state_is_of_torch_or_jax() -> None:
    weights = sw.sync(
        sw.Model({"w": (4,)}, "float32"), sw.Rules("a=2", "_[{a}]"), sw.Rules("a=2", "_")
    )
    assert message(lambda: sw.emit(weights)) == exactly(  # type: ignore[call-overload]
        """
        this value has no modules to emit
        got: Sync
        expected: a Reshard, Matmul or Relayout, a plan, a partitioned function, or the `plan` of a result of sw.sync
        """  # noqa: E501
    )
    assert message(lambda: weights({"w": np.zeros(2)})) == exactly(
        """
        state, w: a state must hold torch tensors or JAX arrays
        got: numpy.ndarray
        expected: a dict of tensors by name; Sync.local moves numpy arrays
        """
    )
    assert message(lambda: weights(None)) == exactly(
        """
        state: the state holds no tensor
        got: None
        expected: JAX arrays by name; None only in a process of a torch process group
        """
    )
    assert message(lambda: weights.source_shardings(3)) == exactly(
        """
        devices: the value must be of type Iterable
        got: 3
        expected: a list of JAX devices, such as jax.devices()[:8]
        """
    )


def test_layouts_that_are_not_of_the_model() -> None:
    """A stored layout has the model's dtypes; a kind is said with its own tensors."""
    stored = sw.Stored(
        "tp=2", {"k": (4, 4), "v": (4, 4)}, {"k": "k[{tp}]", "v": "v[{tp}]"}, "float32"
    )
    rules = sw.Rules("tp=2", {"kv": sw.stack(0, k="tp", v="tp")})
    model = sw.Model({"k": (4, 4), "v": (4, 4)}, "bfloat16")
    assert message(lambda: sw.sync(model, stored, rules)) == exactly(
        """
        source, k: a stored layout must have the shapes and dtypes of the model: nothing is cast
        got: float32[4, 4]
        expected: bfloat16[4, 4]
        """
    )
    weights = sw.sync(sw.Model({"k": (4, 4), "v": (4, 4)}, "float32"), stored, rules)
    said = [kind["source"][0][0] for kind in weights.data["kinds"]]
    assert said == ['k[{"tp"}]', 'v[{"tp"}]']
    shards = {n: {"k": np.zeros((2, 4), f"{'fi'[n]}4"), "v": np.zeros((2, 4))} for n in (0, 1)}
    assert message(lambda: weights.local(shards)) == exactly(
        """
        k: the shards of a buffer must have the same dtype on all devices
        got: float32, int32
        expected: one dtype
        """
    )
