"""The review page of a matmul: its case, why it was chosen, what it could be, its gradients."""

from __future__ import annotations

import ast
import re

import pytest

import shardwright as sw
from shardwright.codegen import registry
from shardwright.codegen.moves.matmul.plan import plan_matmul
from shardwright.codegen.operations.emit.matmul import backward_plans
from shardwright.codegen.show.matmul import CANDIDATES, instead_line, matmul_text, why_line
from shardwright.codegen.show.matmul_review import matmul_page
from shardwright.ir.matmul_plan import MatmulPlan

BOTH_ON_ONE = ("P(None, 'd')", "P(None, 'd')", "P(None, 'd')")
ZERO_3 = ("P('d')", "P(None, 'd')", "P('d')")


def planned(sides: tuple[str, str, str], i: int, k: int, topology: str | None = None) -> MatmulPlan:
    lhs, rhs, out = sides
    made = sw.Matmul("float32", ((i, 64), lhs), ((64, k), rhs), out, mesh="d=8")
    return plan_matmul(made, topology)


@pytest.mark.parametrize(("i", "k", "moved", "stays"), [(8, 512, 0, 1), (512, 8, 1, 0)])
def test_which_operand_of_case_four_moves_and_why(i: int, k: int, moved: int, stays: int) -> None:
    plan = planned(ZERO_3, i, k)
    names = ("lhs", "rhs")
    assert plan.case == 4
    found = re.fullmatch(
        rf"{names[moved]} moves and {names[stays]} stays: ([0-9,]+) bytes in total. "
        rf"If {names[stays]} moved instead, the total would be ([0-9,]+) bytes.",
        instead_line(plan),
    )
    assert found is not None, instead_line(plan)
    mine, other = (int(each.replace(",", "")) for each in found.groups())
    assert mine == plan.chosen.cost.received_max < other
    assert other in [each.cost.received_max for each in plan.others]
    assert instead_line(plan) in matmul_page(plan, "m", "make")


def test_on_a_topology_it_is_seconds() -> None:
    plan = planned(BOTH_ON_ONE, 4096, 8, "v5e:2x4")
    assert re.search(r"moves and rhs stays|moves and lhs stays", instead_line(plan))
    assert instead_line(plan).count("seconds") == 2


def test_nothing_is_said_where_none_or_both_move() -> None:
    assert instead_line(planned(("P('d')", "P()", "P('d')"), 64, 8)) == ""


def test_the_page_has_all_that_a_review_asks_for() -> None:
    plan = planned(BOTH_ON_ONE, 16, 64)
    page = matmul_page(plan, "m", "make", backward_plans(plan))
    headings = re.findall("^## (.*)$", page, re.MULTILINE)
    assert headings == [
        "The case",
        "Candidates",
        "Who multiplies what",
        "Its gradients",
        "Emit and check",
    ]
    tables = [line for line in page.splitlines() if line.startswith("| ")]
    assert tables[0] == f"| {' | '.join(CANDIDATES)} |"
    assert len([line for line in tables if line.startswith(("| lhs | ", "| rhs | "))]) == 2
    assert "Its gradients" not in matmul_page(plan, "m", "make")


def test_a_topology_with_more_devices_is_noted() -> None:
    noted = "h100, 4 of whose 8 devices take part"
    matmul = sw.Matmul("bf16", ((64, 64), "P('d')"), ((64, 64), "P()"), "P()", mesh="d=4")
    for topology, said in (("h100:8", True), ("h100:4", False), ("switch", False)):
        plan = plan_matmul(matmul, topology)
        page = " ".join(matmul_page(plan, "m", "make").split())
        assert (f"predicted by a model of {noted}." in page) == said
        assert ("take part" in page) == said
        assert (", 4 of whose 8 devices take part\n" in matmul_text(plan)) == said


def test_the_row_of_the_same_product_is_explained() -> None:
    """A row for the plan without its kernel is no candidate of its own."""
    said = "One row below has the same product {} kernel that exchanges parts{}."
    no = ", which is no candidate because {}"
    operands = ((8192, 8192), "P('d')"), ((8192, 8192), "P(None, 'd')")
    matmul = sw.Matmul("bf16", *operands, "P(None, 'd')", mesh="d=8")
    for loop, among, *how in (
        ("pulled", (), "without the", ""),
        ("auto", ("pulled",), "without the", ""),
        ("auto", ("one", "both"), "with a", no.format("not all backends have it")),
        ("never", ("pulled",), "with a", no.format('of loop="never"')),
    ):
        plan = plan_matmul(matmul, "h100:8", loop=loop, among=among)
        assert plan.chosen.pulled == plan.may_pull == (how[0] == "without the")
        assert said.format(*how) in why_line(plan)
    assert "One row" not in why_line(plan_matmul(matmul, "v5e:2x4"))


def test_users_of_a_module_learn_how_to_call_it() -> None:
    """Every module has a section, a Triton module the same sentences in its docstring."""
    plan = planned(ZERO_3, 16, 64)
    names = ("pallas_tpu", "triton_gpu", "jax_xla")
    files = sw.emit(plan, names).files("m")
    page = " ".join(files["README.md"].split())
    for name in names:
        assert f"## Using `{name}.py`" in page
        for sentence in registry.backend(name).matmul_usage(plan):
            assert f"- {sentence} -" in page
    docstring = " ".join((ast.get_docstring(ast.parse(files["triton_gpu.py"])) or "").split())
    assert " ".join(registry.backend("triton_gpu").matmul_usage(plan)) in docstring
    assert "Read of `_support`, in this order: `torch_matmul`, `matmul_parts`," in page
    assert (
        "Read of `_support`" not in sw.emit(plan, names, single_file=True).files("m")["README.md"]
    )
    told = '# In the parent folder, whose manifest.json has the matmul and loop="auto":'
    assert told in page
