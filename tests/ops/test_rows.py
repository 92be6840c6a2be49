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
    "add_any",
    "all_gather",
    "all_to_all",
    "broadcast_in_dim",
    "concatenate",
    "cond",
    "constant",
    "constrain",
    "convert_element_type",
    "dynamic_update_slice",
    "gather",
    "iota",
    "manual",
    "max",
    "min",
    "name",
    "pad",
    "reduce_scatter",
    "reduce_sum",
    "remat",
    "reshape",
    "scan",
    "scatter-add",
    "select_n",
    "shift",
    "slice",
    "split",
    "squeeze",
    "transpose",
    "while",
}
"""Ops that passes write or look for, words that also mean something else, and loops and branches.
This list is to become shorter."""


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
    return {n: paths for n, paths in homes.items() if len(paths) > MOST and n not in FURTHER}


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
