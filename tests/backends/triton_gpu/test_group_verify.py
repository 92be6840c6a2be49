"""The module of a group is verified and compiled as those of its members are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_gpu_groups import TABLES, command

from shardwright.codegen.operations.bundles.compile import compile_bundles
from shardwright.codegen.operations.bundles.verify import verify
from shardwright.codegen.operations.verify import Report
from shardwright.codegen.spec.manifest import sha256

pytest.importorskip("torch")
pytest.importorskip("triton")

LARGE = TABLES.replace("shape = [5]", "shape = [1048581]")
# What stands in the kernel, and what is wrong: found in values, in stores, and in reads.
PLANTED = {
    "a tile from its second row": (
        "row = tl.load(block + 1) * LINES.rows",
        "row = 1 + tl.load(block + 1) * LINES.rows",
        "up: device 0",
    ),
    "a tile of another memory": (
        "write = tl.load(targets + tl.load(entry + 1))",
        "write = tl.load(targets)",
        "up: device 0",
    ),
    "more columns than there are": (
        "columns, rows = tl.load(entry + 4) - column,",
        "columns, rows = tl.load(entry + 4) + 16 - column,",
        "a kernel loads from memory outside every shard",
    ),
}


def emitted(tables: str, folder: Path) -> Path:
    """The root of the bundles and the group that a TOML file describes."""
    listed, root = folder / "reshards.toml", folder / "out"
    listed.write_text(tables)
    assert command("emit", listed, "-o", root)[0] == 0
    return root


def of_group(reports: tuple[Report, ...]) -> Report:
    (found,) = (report for report in reports if report.name == "both")
    return found


@pytest.mark.slow
def test_a_group_beside_its_members(tmp_path: Path) -> None:
    root = emitted(TABLES, tmp_path)
    reports = verify(root)
    assert sorted((r.name, r.verdict) for r in reports) == [
        (name, "ok") for name in ("both", "down", "other", "up")
    ]
    assert "stored once" in of_group(reports).checks
    # The folder of the group means its members and it; that of a bundle, that alone.
    assert sorted(r.name for r in verify(root / "both")) == ["both", "down", "up"]
    assert [r.name for r in verify(root / "up")] == ["up"]


def change(path: Path, right: str, wrong: str) -> None:
    """Change a module, and its hash, as if an emission had written it so."""
    listing = path.parent.parent / "manifest.json"
    text = path.read_text()
    assert text.count(right) == 1
    path.write_text(text.replace(right, wrong))
    listed = listing.read_text()
    listing.write_text(listed.replace(sha256(text), sha256(path.read_text())))


def test_a_support_module_edited_by_hand(tmp_path: Path) -> None:
    root = emitted(TABLES, tmp_path)
    path = root / "_support" / "boxes.py"
    path.write_text(path.read_text() + "# mine\n")
    said = "_support/boxes.py was edited by hand: `shardwright check` says how"
    assert {(report.verdict, report.detail) for report in verify(root)} == {("failed", said)}
    path.unlink()
    said = "_support/boxes.py is missing: `shardwright emit` writes it again"
    assert {(report.verdict, report.detail) for report in verify(root)} == {("failed", said)}


def test_a_wrong_kernel(tmp_path: Path) -> None:
    roots = []
    for number, (right, wrong, _) in enumerate(PLANTED.values()):
        (tmp_path / str(number)).mkdir()
        roots.append(emitted(TABLES, tmp_path / str(number)))
        change(roots[-1] / "both" / "triton_gpu.py", right, wrong)
    reports = [r for r in verify([root / "both" for root in roots]) if r.name == "both"]
    for report, (_, _, said) in zip(reports, PLANTED.values(), strict=True):
        assert report.verdict == "failed"
        assert report.detail.startswith(said)


@pytest.mark.slow
def test_tensors_too_large_to_run(tmp_path: Path) -> None:
    """As they are emitted, and edited."""
    for name in "right", "edited":
        (tmp_path / name).mkdir()
        emitted(LARGE, tmp_path / name)
    module = tmp_path / "edited" / "out" / "both" / "triton_gpu.py"
    module.write_text(module.read_text() + "# mine\n")
    reports = verify([tmp_path / name / "out" / "both" for name in ("right", "edited")])
    assert [(r.verdict, r.detail) for r in reports if r.name == "both"] == [
        (
            "ok",
            "twins of its tensors; at full size: text; every element of every target shard "
            "(2 tensors, 2 devices) is written exactly once, from the source element of its index",
        ),
        ("failed", "differs from a new emission: see `shardwright check`"),
    ]


@pytest.mark.slow
def test_the_kernel_of_a_group_compiles(tmp_path: Path) -> None:
    root, saved = emitted(TABLES, tmp_path), tmp_path / "saved"
    reports = compile_bundles(root / "both", ("sm_90", "gfx942"), save=saved)
    assert [(r.name, r.verdict) for r in reports if r.name == "both"] == [("both", "ok")] * 2
    about = json.loads((saved / "both" / "sm_90.json").read_text())
    assert about["tensors"] == ["up", "down"]
    assert [launch["device"] for launch in about["launches"]] == [0, 1]
    moved = sum(e[4] * e[5] for launch in about["launches"] for e in launch["entries"])
    assert moved == 6 * 4 * 4 + 2 * 5  # all of `up` once, `down` to each of two devices
