"""A form of the TPU kernel is named in its own file, and other files ask for its facts."""

from __future__ import annotations

import ast
from collections import defaultdict

from places import ROOT

from shardwright.codegen.backends.pallas_tpu.forms import FORMS
from shardwright.codegen.backends.pallas_tpu.verify.buffers import SHAPES

FOLDER = ROOT / "codegen/backends/pallas_tpu"
OTHERS = {
    "direct": ("backend.py", "phases.py", "program.py", "timeline.py"),  # a plan, and a template
    "ring": ("matmul/text.py", "verify/matmul.py"),  # the ring of a matmul
    "windows": ("program.py", "verify/buffers.py", "verify/reuse.py", "verify/run.py"),
    "slots": (
        *("program.py", "routed/text.py", "strategy.py", "windows.py"),
        *("verify/aligned.py", "verify/buffers.py", "verify/reuse.py"),
    ),
    "spread": ("backend.py",),  # a file of support
}
"""The files in which a form's name means a buffer, a template or something else."""


def strings(text: str) -> frozenset[str]:
    constants = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant))
    return frozenset(node.value for node in constants if isinstance(node.value, str))


def tree() -> dict[str, str]:
    return {str(path.relative_to(FOLDER)): path.read_text() for path in FOLDER.rglob("*.py")}


def naming(given: dict[str, str]) -> dict[str, list[str]]:
    """The files that name each form."""
    found = defaultdict(list)
    for path, text in sorted(given.items()):
        for name in strings(text) & FORMS.keys():
            found[name].append(path)
    return found


def named_too_often(given: dict[str, str]) -> dict[str, list[str]]:
    """The forms that more files name than their own, with these files."""
    found = {name: {*paths} - {*OTHERS.get(name, ())} for name, paths in naming(given).items()}
    return {name: sorted(paths) for name, paths in found.items() if len(paths) != 1}


def test_one_file_names_a_form() -> None:
    assert named_too_often(tree()) == {}


def test_a_second_file_that_names_a_form_is_found() -> None:
    given = tree()
    for name in FORMS:
        breached = {**given, "proofs.py": given["proofs.py"] + f'\nFORM = "{name}"\n'}
        assert [*named_too_often(breached)] == [name]


def test_no_other_meaning_is_listed_in_vain() -> None:
    found = naming(tree())
    assert {n: [p for p in paths if p not in found[n]] for n, paths in OTHERS.items()} == {
        name: [] for name in OTHERS
    }


def test_traces_know_the_buffers_of_every_form() -> None:
    assert {facts.buffers for facts in FORMS.values()} == {*SHAPES}
