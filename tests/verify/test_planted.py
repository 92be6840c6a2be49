"""A worker whose checker is broken, as another version of a runtime may make it, says so."""

from __future__ import annotations

import re
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from sweeps import sampled
from test_verify import case

from shardwright.codegen import registry
from shardwright.codegen.checks.workers import worker
from shardwright.codegen.operations.verify import run_batch

START = """
import sys
{broken}
from shardwright.codegen.operations.verify import worker
worker.main(sys.argv[1])
"""
PALLAS = "from jax._src.pallas.mosaic.interpret import interpret_pallas_call as i, shared_memory\n"
TRITON = "from shardwright.codegen.backends.triton_gpu.verify import memory\n"
SAME = "a kernel without a fault is said to have one: "
BROKEN = {
    "races are not looked for": (
        "pallas_tpu",
        "import jax._src.pallas.mosaic.interpret.race_detection_state as state\n"
        "state.RaceDetectionState.check_write = lambda *_, **__: None",
        "a planted race is not found",
    ),
    "semaphores are not looked at": (
        "pallas_tpu",
        "import re\nsearch = re.search\n"
        "re.search = lambda p, s, *f: None if 'Semaphore' in p else search(p, s, *f)\n"
        "import builtins\nsay = builtins.print\n"
        "builtins.print = lambda *w, **k: None if 'non-zero' in str(w) else say(*w, **k)",
        "a semaphore that is left non-zero is not found",
    ),
    "memory is filled with something else": (
        "pallas_tpu",
        "from shardwright.codegen.backends.pallas_tpu.verify import poison\n"
        "import numpy as np\n"
        "poison.utils.get_uninitialized_value = lambda dtype, _: np.asarray(1, dtype)",
        "fresh memory is not filled with nan; fresh memory is not filled with zero",
    ),
    "a private name is gone": (
        "pallas_tpu",
        f"{PALLAS}del i.reset_tpu_interpret_mode_state",
        r"ImportError: cannot import name 'reset_tpu_interpret_mode_state' from 'jax\..*",
    ),
    "stores are not counted": (
        "triton_gpu",
        f"{TRITON}memory.Memory._store = lambda self, original: original",
        SAME + r"result: element \[0\] is stored 0 times, expected: once; .*",
    ),
    "loads are not looked at": (
        "triton_gpu",
        f"{TRITON}memory.Memory._load = lambda self, original: lambda p, m, o, *h: "
        "original(p, m, o, *h) if False else memory.interpreter.TensorHandle("
        "memory.np.zeros(p.data.shape, memory.np.int32), p.get_element_ty())",
        "a load beyond the input is not found",
    ),
    "values are not compared": (
        "jax_xla",
        "from shardwright.codegen.checks import compare\ncompare.same_bits = lambda *_: None",
        "a wrong element is not found",
    ),
}
QUICKLY = "semaphores are not looked at", "stores are not counted", "values are not compared"
"""One of each backend for every run."""


@pytest.mark.parametrize("name", sampled(BROKEN, *QUICKLY))
def test_what_cannot_be_checked_with(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    backend, broken, said = BROKEN[name]
    requires = registry.runtime(backend).packages
    for package in requires:
        pytest.importorskip(package)
    start = START.format(broken=broken)
    monkeypatch.setattr(worker, "command", lambda _, *words: [sys.executable, "-c", start, *words])
    mini = "triton_gpu" if backend == "triton_gpu" else "pallas_tpu"
    right = case(mini, "right", (), tmp_path)
    (report,) = run_batch(backend, [right])
    assert report.verdict == "failed"
    versions = " and ".join(f"{package} {version(package)}" for package in requires)
    found = report.detail.partition(": ")
    assert found[0] == f"nothing can be verified with {versions}"
    assert re.fullmatch(said, found[2]), report.detail
