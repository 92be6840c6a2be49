"""The bundles kept in git: up to date, of use without us, as the formatter would write them."""

from __future__ import annotations

import itertools
import json
import os
import re
import statistics
import subprocess
import sys

import pytest
from places import ROOT
from sweeps import sampled

from shardwright.codegen import registry
from shardwright.codegen.operations.bundles.check import check
from shardwright.codegen.operations.bundles.verify import verify
from shardwright.codegen.spec.config import read_config

GENERATED = ROOT / "generated"
DESCRIBED = read_config(ROOT / "shardwright.toml").operations
NAMES = [d.name for d in DESCRIBED]
MODULES = sum(len(d.backends) for d in DESCRIBED)

# Refuses every import of ours, as on a machine that has only the bundle.
WITHOUT_US = """
import runpy, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("shardwright", "ir", "codegen", "templates", "sympy", "jinja2"):
            raise ImportError("not installed: " + name)
sys.meta_path.insert(0, Absent())
runpy.run_module(sys.argv[1], run_name="__main__", alter_sys=True)
"""


def test_generated_is_what_would_be_emitted_now() -> None:
    assert "\n".join(str(problem) for problem in check(GENERATED)) == ""


def test_generated_holds_the_corpus_and_the_examples() -> None:
    manifest = json.loads((GENERATED / "manifest.json").read_text())
    assert manifest["config"] == "../shardwright.toml"
    sources = (ROOT / "corpus" / f"{name}.toml" for name in ("reshards", "examples", "relayouts"))
    assert {d.name for path in sources for d in read_config(path).operations} == set(NAMES)
    assert sorted(manifest["bundles"]) == sorted(NAMES)


def test_generated_modules_are_formatted() -> None:
    modules = sorted(str(path) for path in GENERATED.rglob("*.py"))
    backward = [path for path in modules if path.endswith("_backward.py")]
    support = [path for path in modules if "/_support/" in path]
    assert len(modules) == MODULES + len(NAMES) + len(backward) + len(support) + 1
    for verb in (["check"], ["format", "--check"]):
        ruff = [sys.executable, "-m", "ruff", *verb, "--quiet", *modules]
        result = subprocess.run(ruff, capture_output=True, text=True, cwd=ROOT)
        assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(("file", "most"), [("README.md", 58), ("reshard.svg", 45)])
def test_pages_and_pictures_are_short(file: str, most: int) -> None:
    assert statistics.median(p.read_text().count("\n") for p in GENERATED.rglob(file)) <= most


def test_every_function_of_a_tpu_module_is_used() -> None:
    """By name, anywhere but where it is defined."""
    for path in GENERATED.rglob("pallas_tpu*.py"):
        text = path.read_text()
        for name in {*re.findall(r"^def (\w+)", text, re.MULTILINE)} - {"__getattr__"}:
            uses = len(re.findall(rf"\b{name}\b", text))
            assert uses > 1, f"{path}: {name}"


@pytest.mark.slow
@pytest.mark.parametrize("backend", registry.NAMES)
def test_generated_modules_equal_the_oracle(backend: str) -> None:
    """Those of the examples; `make demo` runs those of the corpus."""
    examples = read_config(ROOT / "corpus" / "examples.toml").operations
    having = [d.name for d in examples if backend in d.backends]
    reports = verify([GENERATED / name for name in having], backends=[backend])
    assert len(reports) == len(having) > 0
    assert [report for report in reports if report.verdict != "ok"] == []


SELF_CHECKED = itertools.product(
    ("transpose_2x3", "torch_nested_2x2", "trainer_to_server"), ("pallas_tpu", "triton_gpu")
)
QUICKLY = (("transpose_2x3", "pallas_tpu"), ("trainer_to_server", "triton_gpu"))


@pytest.mark.parametrize("which", sampled(SELF_CHECKED, *QUICKLY), ids=".".join)
def test_modules_check_themselves_without_us(which: tuple[str, str]) -> None:
    """`python -m generated.NAME.BACKEND`, on a machine without Shardwright."""
    module = ".".join(("generated", *which))
    result = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", "-c", WITHOUT_US, module],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "TRITON_INTERPRET")},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout != ""
