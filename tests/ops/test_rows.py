"""An op is stated in the file of its family, and few other files name it."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import defaultdict
from functools import cache

from places import ROOT, TESTS

from shardwright.codegen.ops.table import KINDS

ROOMS = ("ops", "trace", "propagate", "partition", "backends/jax_spmd")
MOST = 3
"""Files that may name an op: its family's, its local form's, and that of the form's text."""

FURTHER = {
    "add": 4,
    "all_gather": 11,
    "all_to_all": 10,
    "broadcast_in_dim": 16,
    "concatenate": 5,
    "cond": 7,
    "constant": 20,
    "constrain": 14,
    "convert_element_type": 9,
    "dynamic_update_slice": 5,
    "gather": 5,
    "iota": 7,
    "manual": 12,
    "max": 9,
    "min": 9,
    "name": 5,
    "pad": 11,
    "reduce_scatter": 11,
    "reduce_sum": 6,
    "remat": 8,
    "reshape": 8,
    "scan": 11,
    "scatter-add": 4,
    "select_n": 6,
    "shift": 4,
    "slice": 16,
    "split": 4,
    "squeeze": 4,
    "transpose": 7,
    "while": 8,
}
"""Ops that passes write or look for, words that also mean something else, and loops and branches:
the most files that name them."""


@cache
def strings(text: str) -> frozenset[str]:
    """The strings in a file, but docstrings."""
    nodes = [*ast.walk(ast.parse(text))]
    said = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    constants = (n for n in nodes if isinstance(n, ast.Constant) and id(n) not in said)
    return frozenset(node.value for node in constants if isinstance(node.value, str))


def tree() -> dict[str, str]:
    paths = (path for room in ROOMS for path in (ROOT / "codegen" / room).rglob("*.py"))
    return {str(path.relative_to(ROOT)): path.read_text() for path in sorted(paths)}


def named_too_often(given: dict[str, str]) -> dict[str, list[str]]:
    """The ops that more files name than may, with these files."""
    homes = defaultdict(list)
    for path, text in given.items():
        for name in strings(text) & KINDS.keys():
            homes[name].append(path)
    return {name: paths for name, paths in homes.items() if len(paths) > FURTHER.get(name, MOST)}


def test_few_files_name_an_op() -> None:
    assert named_too_often(tree()) == {}


def test_a_fourth_file_that_names_an_op_is_found() -> None:
    homes = [path for path, text in tree().items() if "conv_general_dilated" in strings(text)]
    others = [path for path in tree() if path not in homes][: MOST + 1 - len(homes)]
    breached = {**tree(), **dict.fromkeys(others, 'KIND = "conv_general_dilated"')}
    assert [*named_too_often(breached)] == ["conv_general_dilated"]


def test_the_list_of_others_names_none_in_vain() -> None:
    homes = {name: sum(name in strings(text) for text in tree().values()) for name in FURTHER}
    assert {name for name, count in homes.items() if count <= MOST} == set()


def test_an_elementwise_op_is_one_row() -> None:
    """Its row alone gives it a rule, a text, a name, and one device's values on two."""
    command = (sys.executable, str(TESTS / "one_row_process.py"))
    made = subprocess.run(command, cwd=TESTS, text=True, capture_output=True, check=True)
    found = json.loads(made.stdout.splitlines()[-1])
    assert found["wrong"] == ""
    (text,) = found["text"]
    assert text.partition(" = ")[2].startswith("jnp.sin(")
