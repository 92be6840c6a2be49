"""Relayouts on more devices than run here: their tables are followed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from strategies import message

import shardwright as sw
from shardwright.codegen.checks.compare import MismatchError
from shardwright.codegen.checks.load import load
from shardwright.codegen.checks.relayout_case import RelayoutCase
from shardwright.codegen.operations.verify.relayout_tables import CHECK, followed

pytest.importorskip("torch")
pytest.importorskip("triton")

TENSORS = {"q": (132, 2), "k": (33, 2)}


def relayout() -> sw.Relayout:
    """A fused weight on 66 devices, to packed rows with padding on 65 of them."""
    source = sw.Stored("fsdp=66", TENSORS, "cut(0, {fsdp}, stack(0, q, k))", "int16")
    target = sw.Stored("tp=65", TENSORS, "stack(0, q[{tp} sized(3)], k[{tp} balanced])", "int16")
    return sw.Relayout(source, target)


def test_tables_are_followed(tmp_path: Path) -> None:
    text = sw.emit(relayout(), ("triton_gpu",)).files("it")["triton_gpu.py"]
    path = tmp_path / "moved.py"
    path.write_text(text)
    module: Any = load(path)
    case = RelayoutCase.of(relayout(), "it", "triton_gpu", path, execute=False)
    assert followed(module, case) == (CHECK,)
    *ends, start = module.RELAYS[-1]
    for wrong, said in ((start - 1, "elements are wrong"), (start + 9, "reaches element")):
        module.RELAYS[-1] = (*ends, wrong)
        with pytest.raises(MismatchError, match=said):
            followed(module, case)


def test_a_module_lists_no_more(tmp_path: Path) -> None:
    """Every device of 129 sends a box to every other one."""
    shapes = {"x": (129, 129)}
    sides = (sw.Stored("tp=129", shapes, each, "int8") for each in ("x[{tp}]", "x[{}, {tp}]"))
    assert message(lambda: sw.emit(sw.Relayout(*sides))) == (
        "target: too many boxes for a module to list\n"
        "got: 16,641 strided boxes between 129 and 129 devices\n"
        "expected: at most 16,384; for plain shardings use sw.Reshard"
    )
