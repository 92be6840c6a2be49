"""A planted fault, and the roots in which faults stand."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from shardwright.codegen.operations.bundles.verify import verify
from shardwright.codegen.operations.verify import Report
from shardwright.codegen.spec.manifest import SUPPORT, sha256

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Fault:
    """One edit. `bundle`: the smallest bundle, or group, that shows it, by a module of `backend`;
    `file`: of the support modules, or else of the bundle; `right`: text that occurs once in it,
    `wrong`: what stands there instead; `said`: part of what `verify` must say."""

    backend: str
    bundle: str
    file: str
    right: str
    wrong: str
    said: str


@cache
def emitted() -> Path:
    """Return the root of the bundles, emitted once a process."""
    home = Path(tempfile.mkdtemp(prefix="shardwright-planted-"))
    shutil.copy(HERE / "bundles.toml", home / "shardwright.toml")
    words = "emit", str(home / "shardwright.toml")
    subprocess.run([sys.executable, "-m", "shardwright", *words], check=True, capture_output=True)
    return home / "generated"


def edited(fault: Fault, root: Path) -> tuple[Path, str, str]:
    """Return the file below a root that a fault edits, its text, and what becomes of that. Raises
    ValueError for text that does not occur just once."""
    support = root / SUPPORT / fault.file
    path = support if support.is_file() else root / fault.bundle / fault.file
    text = path.read_text(encoding="utf-8")
    if text.count(fault.right) != 1:
        raise ValueError(f"{fault.file} has {text.count(fault.right)} times: {fault.right!r}")
    return path, text, text.replace(fault.right, fault.wrong)


def plant(fault: Fault, root: Path) -> None:
    """Make the edit in the files below a root, with the hash of the file brought up to date, as one
    who wants it to pass would do."""
    path, text, changed = edited(fault, root)
    path.write_text(changed, encoding="utf-8")
    listing = root / "manifest.json"
    listed = listing.read_text(encoding="utf-8")
    assert sha256(text) in listed
    listing.write_text(listed.replace(sha256(text), sha256(changed)), encoding="utf-8")


@contextmanager
def planted(faults: Iterable[Fault]) -> Iterator[list[Path]]:
    """Give roots, each with one of the faults."""
    with tempfile.TemporaryDirectory(prefix="shardwright-faults-") as folder:
        roots = []
        for number, fault in enumerate(faults):
            roots.append(Path(folder) / f"root{number}")
            shutil.copytree(emitted(), roots[-1])
            plant(fault, roots[-1])
        yield roots


def found(faults: Sequence[Fault]) -> list[str]:
    """Return what `verify` says of the bundle of each fault, the empty string where it says ok. The
    modules of a backend are run by one worker."""
    said: dict[Fault, str] = {}
    for backend in dict.fromkeys(fault.backend for fault in faults):
        mine = [fault for fault in faults if fault.backend == backend]
        with planted(mine) as roots:
            paths = [root / fault.bundle for root, fault in zip(roots, mine, strict=True)]
            reports = verify(paths, backends=[backend])
        for bundle in dict.fromkeys(fault.bundle for fault in mine):
            own = (report for report in reports if report.name == bundle)
            of_bundle = [fault for fault in mine if fault.bundle == bundle]
            said |= {fault: _said(report) for fault, report in zip(of_bundle, own, strict=True)}
    return [said[fault] for fault in faults]


def _said(report: Report) -> str:
    return report.detail or report.name if report.verdict == "failed" else ""
