"""Every name that a module exports is exercised by a check that a backend's contract lists."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest
from places import ROOT

from shardwright.codegen import registry
from shardwright.codegen.checks.compare import MismatchError
from shardwright.codegen.operations.verify.exported import Exported

MODULES = sorted(
    path for backend in registry.NAMES for path in (ROOT / "generated").glob(f"*/{backend}*.py")
)


def exported(path: Path) -> list[str]:
    """The names in `__all__` of a module, which is not imported."""
    names = []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if [getattr(each, "id", "") for each in targets] == ["__all__"]:
            names += ast.literal_eval(node.value)  # type: ignore[attr-defined]
    return names


def table(path: Path) -> Mapping[str, str]:
    """The checks of what a module exports, by what its bundle is of."""
    (backend,) = (each for each in registry.NAMES if path.name.startswith(each))
    contract = registry.contract(backend)
    if "RECEIVED" in exported(path):
        return contract.exported_by_relayouts
    if "matmul" in exported(path):
        return contract.exported_by_matmuls
    return contract.exported_by_groups if "NAMES" in exported(path) else contract.exported


def test_modules_are_found() -> None:
    assert len(MODULES) > 50
    assert all(map(exported, MODULES))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_each_export_has_a_check(path: Path) -> None:
    assert {*exported(path)} <= {*table(path)}


def module(**exports: object) -> ModuleType:
    made = ModuleType("emitted")
    made.__dict__.update(exports, __all__=sorted(exports))
    return made


def test_an_export_without_a_check() -> None:
    with pytest.raises(MismatchError) as caught:
        Exported(module(move=len), {"reshard": "values"})
    assert str(caught.value) == "exports move: no check exercises it"


def test_a_check_that_was_not_made() -> None:
    made = module(move=len)
    exports = Exported(made, {"move": "values"})
    with pytest.raises(MismatchError) as caught:
        exports.exercised(made, ["constants"])
    assert str(caught.value) == "exports move: 'values' was not checked"


def test_a_check_that_does_not_call_it() -> None:
    made = module(move=len, NAMES=["a"])
    exports = Exported(made, {"move": "values", "NAMES": "values"})
    with pytest.raises(MismatchError) as caught:
        exports.exercised(made, ["values"])
    assert str(caught.value) == "exports move: 'values' does not call it"
    assert made.move("ab") == 2
    exports.exercised(made, ["values"])
