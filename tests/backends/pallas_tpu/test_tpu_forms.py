"""A form of the TPU kernel is named in its own file, and other files ask for its facts."""

from __future__ import annotations

import ast
from collections import defaultdict

from places import ROOT

from shardwright.codegen.backends.pallas_tpu.all_forms import FACTS, FORMS
from shardwright.codegen.backends.pallas_tpu.verify.buffers import SHAPES

FOLDER = ROOT / "codegen/backends/pallas_tpu"
OTHERS = {
    "direct": ("backend.py", "phases.py", "timeline.py"),  # a plan
    "ring": ("matmul/text.py", "verify/matmul.py"),  # the ring of a matmul
    "routed": ("kernel_forms/spread.py",),  # a template
    "windows": ("verify/buffers.py", "verify/reuse.py", "verify/run.py"),
    "slots": (
        *("kernel_forms/relayed.py", "kernel_forms/windows.py", "routed/docstring.py"),
        *("routed/text.py", "verify/aligned.py", "verify/buffers.py", "verify/reuse.py"),
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
        for name in strings(text) & FACTS.keys():
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
    for name in FACTS:
        breached = {**given, "proofs.py": given["proofs.py"] + f'\nFORM = "{name}"\n'}
        assert [*named_too_often(breached)] == [name]


def test_no_other_meaning_is_listed_in_vain() -> None:
    found = naming(tree())
    assert {n: [p for p in paths if p not in found[n]] for n, paths in OTHERS.items()} == {
        name: [] for name in OTHERS
    }


def test_traces_know_the_buffers_of_every_form() -> None:
    assert {facts.buffers for facts in FACTS.values()} == {*SHAPES}


def test_each_file_has_the_form_of_its_name() -> None:
    files = {path.stem for path in (FOLDER / "kernel_forms").glob("[a-z]*.py")}
    assert {form.facts.name for form in FORMS} == files
    ranks = [facts.rank for facts in FACTS.values()]
    assert ranks == sorted({*ranks})


CLASSES = frozenset(each.__name__ for form in FORMS for each in form.__mro__[:-2])
"""The classes of forms, those that several share too."""


def asked(given: dict[str, str]) -> list[str]:
    """The files that ask of which class a form is. The class of forwarding forms compares another
    form with itself."""
    found = []
    for path, text in given.items():
        nodes = [*ast.walk(ast.parse(text))]
        calls = (
            n for n in nodes if isinstance(n, ast.Call) and ast.unparse(n.func) == "isinstance"
        )
        kinds = [*(call.args[1] for call in calls)]
        kinds += [node.cls for node in nodes if isinstance(node, ast.MatchClass)]
        names = {ast.unparse(each) for kind in kinds for each in ast.walk(kind)}
        found += [path] if names & CLASSES and path != "routed/strategy.py" else []
    return found


def test_no_file_asks_for_the_class_of_a_form() -> None:
    assert asked(tree()) == []
    for planted in (
        "isinstance(1, int | Slots)",
        "match 1:\n    case ForwardingForm():\n        1",
    ):
        breached = {**tree(), "strategy.py": tree()["strategy.py"] + f"\n{planted}\n"}
        assert asked(breached) == ["strategy.py"]
