"""The order in which Triton kernels copy tiles: links are busy as evenly as in the plan."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from lone import alone

from shardwright.codegen.checks.compare import MismatchError
from shardwright.codegen.checks.load import load
from shardwright.codegen.moves import plan
from shardwright.codegen.operations.bundles.verify import verify
from shardwright.codegen.operations.emit.emit import emit
from shardwright.ir import Mesh, Reshard

pytest.importorskip("triton", reason="triton is not installed")
pytest.importorskip("torch", reason="torch is not installed")

from shardwright.codegen.backends.triton_gpu.verify.copies import check_copies


def made(mesh: dict[str, int], shape: tuple[int, ...], source: str, target: str) -> Reshard:
    """A reshard of float32 on a mesh."""
    on = Mesh(mesh)
    return Reshard(shape, "float32", on.sharding(source), on.sharding(target))


COLUMNS = made({"x": 8}, (64, 64), '[{"x"}, {}]', '[{}, {"x"}]')
CASES = {
    # Of each of eight turns seven devices read 64 elements of one sender, or one.
    "rows to columns": (COLUMNS, "a0 = number", 8 * 7 * 64, 7 * 64),
    "gather": (made({"x": 8}, (64, 64), '[{"x"}, {}]', "[{}, {}]"), "a0 = number",
               8 * 7 * 512, 7 * 512),
    "transpose": (made({"x": 2, "y": 3}, (6, 6), '[{"x"}, {"y"}]', '[{"y"}, {"x"}]'),
                  "a1 = to1 // 2 + number % 2", 15, 13),
}  # fmt: skip
"""By name: a reshard, an order that no device rotates, elements in that and in the plan's order."""


def unrotated(text: str, line: str) -> str:
    """A module's text with another order."""
    edited = re.sub(rf"{line[:2]} = .*", line, text, count=1)
    assert edited != text
    return edited


@pytest.mark.parametrize("name", CASES)
def test_tiles_that_all_devices_read_from_one_sender(name: str, tmp_path: Path) -> None:
    reshard, line, longest, least = CASES[name]
    text, module = alone(plan(reshard), "triton_gpu"), tmp_path / "right.py"
    module.write_text(text)
    assert check_copies(load(module)._HOST.phases) == ("copies", "order of copies")
    module = tmp_path / "wrong.py"
    module.write_text(unrotated(text, line))
    with pytest.raises(MismatchError) as caught:
        check_copies(load(module)._HOST.phases)
    assert str(caught.value) == (
        f"wrong order of tiles: the busiest senders of all turns send {longest} elements together, "
        f"expected at most {least}, as in the plan's order"
    )


def test_verify_says_so(tmp_path: Path) -> None:
    emit(COLUMNS, ("triton_gpu",)).write(tmp_path / "case")
    module = tmp_path / "case" / "triton_gpu.py"
    module.write_text(unrotated(module.read_text(), "a0 = number"))
    (report,) = verify(tmp_path)
    assert (report.verdict, report.detail[:20]) == ("failed", "wrong order of tiles")
