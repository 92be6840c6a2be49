"""The modules of models: as the formatter wants them, and right in one process."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from style import FORMATTED, LINTED
from toy_models import TOYS, bits, planned

import shardwright as sw
from shardwright.codegen.operations.emit.model import DATA_FILE, model_backends, model_files
from shardwright.codegen.text.support import support_files
from shardwright.templates.support import progress_line


def emitted(folder: Path) -> dict[str, str]:
    """The files of a toy, written into a package with their support."""
    data = planned(TOYS["deepseek"]([0, 1], [1, 2]), 3000).data
    facts = ("Moves a toy.", "It is after DeepSeek-V3.")
    files = model_files(data, model_backends(), facts, "shardwright emit toy.toml --model toy")
    for name, text in files.items():
        (folder / "toy").mkdir(parents=True, exist_ok=True)
        (folder / "toy" / name).write_text(text)
    support = support_files(model_backends(), modelled=True)
    for name, text in support.items():
        (folder / "_support").mkdir(parents=True, exist_ok=True)
        (folder / "_support" / name).write_text(text)
    (folder / "__init__.py").write_text("")
    return files


def test_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short, formatted, and with all that they import."""
    torch = pytest.importorskip("torch")
    files = emitted(tmp_path / "kernels")
    assert {*files} == {"triton_gpu.py", "jax_xla.py", "__init__.py", DATA_FILE}
    for command in (FORMATTED, LINTED):
        done = subprocess.run(
            [sys.executable, "-m", *command, str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
    assert max(text.count("\n") for name, text in files.items() if name != DATA_FILE) < 100
    monkeypatch.syspath_prepend(str(tmp_path))
    before, after = bits(TOYS["deepseek"]([0, 1], [1, 2]), 7)
    from kernels.toy.triton_gpu import sync  # type: ignore[import-not-found]

    given = {
        device: {
            name: torch.from_numpy(x.view(f"i{x.itemsize}")).view(sync.shapes(device, 0)[name][0])
            for name, x in held.items()
        }
        for device, held in before.items()
    }
    for device, held in sync.local(given).items():
        for name, x in held.items():
            wanted = after[device][name]
            got = x.view({1: torch.int8, 2: torch.int16, 4: torch.int32}[x.itemsize]).numpy()
            np.testing.assert_array_equal(got.view(wanted.dtype), wanted, name)
    for name in [name for name in sys.modules if name.split(".")[0] == "kernels"]:
        monkeypatch.delitem(sys.modules, name)


def test_backends() -> None:
    with pytest.raises(sw.InputError, match=r"pallas_tpu cannot emit models"):
        model_backends(["pallas_tpu"])


class Terminal(io.StringIO):
    """A file that is a terminal, or none."""

    def __init__(self, is_one: bool) -> None:
        super().__init__()
        self.is_one = is_one

    def isatty(self) -> bool:
        return self.is_one


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a second, on one process, unless there is a callback; and gone at the end."""
    seconds = iter([0.0, 0.5, 2.0, 3.0])
    monkeypatch.setattr(progress_line.time, "monotonic", lambda: next(seconds))
    terminal = Terminal(True)
    monkeypatch.setattr(sys, "stderr", terminal)
    assert progress_line.shown(None, False) is None
    assert progress_line.shown(print, True) is print
    bar = progress_line.shown(None, True)
    for number, done in enumerate((1, 3, 4)):
        bar(done * 10**9, 4 * 10**9, number + 1)
    half = "#" * 22 + "." * 8
    assert terminal.getvalue() == (f"\r\033[Kbucket 2 [{half}] 3.00 of 4.00 GB, 2 s\r\033[K")
    monkeypatch.setattr(sys, "stderr", Terminal(False))
    assert progress_line.shown(None, True) is None
