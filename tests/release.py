"""Build the wheel and the source distribution, and install each in an empty environment.

`make release` runs this; it needs no pytest. The files stay in build/release; nothing is published.
The exit code is 1 at the first failure.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import shardwright

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "build/release"
PYTHONS = ("3.11", "3.13")
SHIPPED = ("shardwright", "ir", "codegen", "templates", "pyproject.toml", "README.md", "LICENSE")
BUNDLES = ("transpose_2x3", "trainer_to_server", "steps_2x4")
"""A small reshard, two meshes, and a plan of several steps that is plain JAX."""

USE = """
import importlib.util, sys
import shardwright as sw

assert sw.__file__.startswith(sys.prefix), f"{sw.__file__} is not in {sys.prefix}"
for name in sw.__all__:
    getattr(sw, name)
for extra in ("jax", "torch", "triton"):
    assert importlib.util.find_spec(extra) is None, f"the environment is not empty: it has {extra}"
"""


def main() -> None:
    """Build, then install and use each file with each Python that this machine has."""
    version = _announced()
    with tempfile.TemporaryDirectory() as folder:
        _build(Path(folder))
        built = sorted(OUT.iterdir())
        names = [f"shardwright-{version}-py3-none-any.whl", f"shardwright-{version}.tar.gz"]
        if [each.name for each in built] != names:
            sys.exit(f"built {[each.name for each in built]}, expected {names}")
        pythons = dict(_pythons())
        for number, (python, file) in enumerate(product(pythons, built)):
            _use(pythons[python], file, version, Path(folder) / str(number))
            print(f"Python {python}: {file.name} installed and used", flush=True)
    for missing in sorted(set(PYTHONS) - set(pythons)):
        print(f"Python {missing}: not tried, this machine has none")


def _announced() -> str:
    """The version, with which the changelog must begin."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\S+)", text, re.MULTILINE)
    if newest is None or newest[1] != shardwright.__version__:
        sys.exit(f"CHANGELOG.md does not begin with version {shardwright.__version__}")
    return newest[1]


def _build(folder: Path) -> None:
    """Build from a copy of the tracked files: setuptools would add old ones from build/lib."""
    tree = folder / "tree"
    for path in _run("git", "ls-files", "--cached", *SHIPPED, cwd=ROOT).splitlines():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, tree / path)
    shutil.rmtree(OUT, ignore_errors=True)
    _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", OUT, ".", cwd=tree)


def _pythons() -> Iterator[tuple[str, str]]:
    """The interpreters of `PYTHONS` on this machine; a shim of pyenv may stand for none."""
    for version in PYTHONS:
        kept = (Path.home() / ".pyenv/versions").glob(f"{version}.*/bin/python")
        for python in (*map(str, kept), shutil.which(f"python{version}")):
            if python and subprocess.run([python, "-c", ""], capture_output=True).returncode == 0:
                yield version, python
                break


def _use(python: str, file: Path, version: str, folder: Path) -> None:
    """Install a file where nothing else is, emit, and compare with generated/."""
    uv = Path(sys.executable).with_name("uv")
    own = folder / "venv/bin/python"
    _run(uv, "venv", "--no-config", "--python", python, folder / "venv", cwd=ROOT)
    install = ("pip", "install", "--no-config", "--system-certs", "--python", own, file)
    _run(uv, *install, cwd=ROOT)
    _run(own, "-c", USE, cwd=folder)
    command = own.with_name("shardwright")
    said = _run(command, "--version", cwd=folder).strip()
    if said != f"shardwright {version}":
        sys.exit(f"{file.name} says {said!r}, expected version {version}")
    config = ROOT / "shardwright.toml"
    _run(command, "emit", config, *BUNDLES, "-o", folder / "generated", cwd=folder)
    for name in BUNDLES:
        if _files(folder / "generated" / name) != _files(ROOT / "generated" / name):
            sys.exit(f"{file.name} with {python} emits another generated/{name} than the tree")
    verify = [command, "verify", folder / "generated" / BUNDLES[0]]
    refused = subprocess.run(verify, cwd=folder, text=True, capture_output=True)
    for extra in ("gpu", "tpu"):
        if f"'.[{extra}]'" not in refused.stderr or refused.returncode != 2:
            sys.exit(f"verify without the extra {extra!r} does not name it: {refused.stderr}")


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def _run(*words: str | Path, cwd: Path) -> str:
    """Run a command and return its output; end with its message if it fails."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(list(map(str, words)), cwd=cwd, env=env, text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


if __name__ == "__main__":
    main()
