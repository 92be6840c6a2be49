"""README does what it says: its commands run, its Python runs, its emitted lines are emitted."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT, TESTS
from sweeps import sampled

TEXT = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the commands of README read."""
    folder = tmp_path_factory.mktemp("reader")
    for name in ("corpus", "shardwright.toml"):
        (folder / name).symlink_to(ROOT / name)
    return folder


@pytest.mark.slow
def test_the_commands(folder: Path) -> None:
    """In order; what is installed is left to `make`, which installs the same extras."""
    bin_folder = Path(sys.executable).parent
    env = {**os.environ, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    assert [line for line in lines if not line.startswith("shardwright ")] == [
        "pip install .",
        "pip install '.[tpu,gpu]'",
    ]
    commands = [shlex.split(line) for line in lines if line.startswith("shardwright ")]
    names = ["emit", "emit", "plan", "show", "verify", "check", "compile"]
    assert [words[1] for words in commands] == names
    for words in commands:
        result = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr


PROGRAMS = [block for block in blocks("python") if block.startswith("import")]


@pytest.mark.parametrize("number", sampled(range(len(PROGRAMS)), 0, 2, 3))
def test_the_python(number: int, tmp_path: Path) -> None:
    """Each program alone, that of torch in six processes, in the folder of whoever reads it."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAMS[number])
    words = [sys.executable]
    if "init_device_mesh" in PROGRAMS[number]:
        launch = f"{re.findall('`(torchrun [^`]*)`', TEXT)[0]} --standalone"
        words += ["-m", "torch.distributed.run", *shlex.split(launch)[1:]]
        words += [str(TESTS / "leave_at_once.py")]
    env = os.environ | {"PYTHONPATH": str(tmp_path), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([*words, program], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr}"


def test_the_first_command_is_the_corpus(tmp_path: Path) -> None:
    """What it says in jax's words is what the corpus says in Shardy's."""
    command = next(line for line in blocks("sh")[0].splitlines() if line.startswith("shardwright"))
    words = [sys.executable, "-m", *shlex.split(command)]
    subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)
    made = (tmp_path / "kernels/transpose_2x3/plan.json").read_text()
    assert made == (ROOT / "generated/transpose_2x3/plan.json").read_text()


def test_the_emitted_lines() -> None:
    (kernel,) = (block for block in blocks("python") if not block.startswith("import"))
    assert kernel in (ROOT / "generated/transpose_2x3/triton_gpu.py").read_text()
    weight = ROOT / "generated/llama3_70b_wq_fsdp_to_tp"
    moved = json.loads((weight / "plan.json").read_text())["bytes"]
    assert f"sends {moved['received_max']:,} bytes to each of eight" in TEXT.replace("\n", " ")
    assert moved["received_max"] == moved["bound_received_max"]
    assert moved["received_total"] == 8 * moved["received_max"]


def test_the_config(tmp_path: Path) -> None:
    """That of its page: all of it is emitted."""
    page = (ROOT / "docs/config.md").read_text()
    (config,) = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "more").mkdir()
    layer = config.split("\n\n")[1].replace("wq", "wk").replace("[8192,", "[1024,")
    (tmp_path / "more/layers.toml").write_text(layer)
    (tmp_path / "shardwright.toml").write_text(config)
    words = [sys.executable, "-m", "shardwright", "emit"]
    run = subprocess.run(words, cwd=tmp_path, check=True, capture_output=True, text=True)
    said = [line.partition(":")[0] for line in run.stdout.splitlines()]
    names = ("_support", "wk", "wq", "wk_gathered", "layer0_wo", "layer0_norm")
    names = (*names, "mlp_up", "qkv", "served", "weights")
    assert said == [f"generated/{name}" for name in names]


def test_its_length() -> None:
    assert len(TEXT.split()) < 1600
    assert len(re.sub(r"^```.*?^```$", "", TEXT, flags=re.MULTILINE | re.DOTALL).split()) <= 900


def test_the_links_inside_the_tree() -> None:
    for path in re.findall(r"`((?:corpus|generated|tests|ir|codegen)/[\w./]+)`", TEXT):
        assert (ROOT / path).exists(), path
