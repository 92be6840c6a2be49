"""Kernels of matmuls are text of their templates: every copy, wait, signal, loop and condition.
Templates are given expressions that only compute, numbers, names and comments."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import is_dataclass
from pathlib import Path

import pytest
from contexts import Given
from matmul_kernels import RING, blocked
from places import ROOT
from style import FORMATTED, LINTED

import shardwright as sw
from shardwright.codegen.backends.pallas_tpu.matmul.kernel import MatmulRing
from shardwright.codegen.backends.pallas_tpu.matmul.lines import kernel_lines
from shardwright.codegen.backends.pallas_tpu.matmul.text import MatmulKernel
from shardwright.codegen.moves.matmul.plan import plan_matmul

TEMPLATES = ROOT / "templates" / "pallas_tpu"
CONDITIONS = 8
"""A template has no more, with all that it includes."""

GIVEN = Given(
    {
        *("half_bytes", "block_bytes", "result_bytes", "vmem_bytes", "size", "does"),
        *("order", "ways_said"),
    },
    {
        *("div", "rem", "multiple", "minimum", "by_way", "part_of"),
        *("pl.ds", "jnp.where", "np.int32", "BlockedArray", "TiledArray", "ring_kernel"),
    },
)
ROWS, COLUMNS, WHOLE = '[{"i"}, {}]', '[{}, {"i"}]', "[{}, {}]"
BATCH, BATCHES = '[{"i"}, {}, {}]', "[{}, {}, {}]"
EVERY = (
    ("bfloat16", ((256, 512), ROWS), ((512, 128), WHOLE), WHOLE),
    ("float32", ((264, 600), WHOLE), ((600, 264), COLUMNS), WHOLE),
    ("int8", ((1040, 1040), COLUMNS), ((1040, 520), WHOLE), WHOLE),
    ("bfloat16", ((264, 520), COLUMNS), ((520, 136), ROWS), ROWS),
    ("bfloat16", ((8, 40, 64), BATCH), ((8, 64, 40), BATCHES), BATCHES),
)


def rings() -> Iterator[MatmulRing]:
    """Kernels along each factor, one way and both, whole blocks and small ones, with ends and
    without, sums in VMEM and in HBM."""
    for (dtype, *sides, out), loop in itertools.product(EVERY, ("one", "both")):
        plan = plan_matmul(sw.Matmul(dtype, *sides, out, mesh=RING), loop=loop, listed=0)
        assert plan.chosen.loop is not None
        for small in (nullcontext(), blocked((1, 32, 128, 128), keeps=False)):
            with small:
                yield MatmulRing.of(plan, plan.chosen.loop)


def values(context: object, text: str, letter: str = "m") -> Iterator[tuple[str, object]]:
    """What a template prints of a context, and of what it loops over, by name."""
    for name in sorted({*re.findall(rf"\b{letter}\.(\w+)", text)}):
        value = getattr(context, name)
        for each in value if isinstance(value, tuple) else (value,):
            if not is_dataclass(each):
                yield name, each
                continue
            for inner in re.findall(rf"for (\w+) in {letter}\.{name} ", text):
                yield from values(each, text, inner)


def text_of(name: str) -> str:
    """A template with what it includes."""
    text = (TEMPLATES / name).read_text()
    for other in re.findall(r'include "pallas_tpu/(.*)"', text):
        text += text_of(other)
    return text


def test_contexts_hold_no_statement() -> None:
    """And each optional part of the templates is in one of the kernels."""
    found = [MatmulKernel(ring, "_RING", "AXES", 0) for ring in rings()]
    for context in found:
        form = "gather" if context.product.gathers else "scatter"
        given = list(values(context, text_of(f"{form}_matmul.py.jinja")))
        assert len(given) > 60
        assert [each for each in given if each[1] != "" and not GIVEN.is_plain(*each)] == []
    for part in ("ends", "whole", "adds", "keeps_sums"):
        assert {bool(getattr(each, part)) for each in found} == {True, False}, part
    for part in ("travels", "first"):
        has = {bool(getattr(operand, part)) for each in found for operand in each.operands}
        assert has == {True, False}, part


@pytest.mark.parametrize(
    "planted",
    [
        "block.j == 0)(lambda: clear(total))\n    pl.when(True",
        "there.wait()",
        "pl.semaphore_wait(barrier, 1)",
        "0 if block.j else 1",
    ],
)
def test_a_statement_in_a_context_is_found(planted: str) -> None:
    assert GIVEN.strange({"begins": planted, "last_j": 1}) == ["begins"]


@pytest.mark.parametrize("form", ["gather", "scatter"])
def test_templates_choose_little(form: str) -> None:
    said = re.findall(r"\{[%{][^%}]*\b(?:if|elif) ", text_of(f"{form}_matmul.py.jinja"))
    assert len(said) <= CONDITIONS


def test_kernels_are_formatted(tmp_path: Path) -> None:
    """As a formatter would have them, no line too long."""
    names = "LOGICAL, Block, BlockedArray, RingMatmul, TiledArray, add_product, by_way, clear, div"
    more = "each, jnp, mask, minimum, multiple, np, pl, pltpu, put_product, put_sum, rem"
    for number, ring in enumerate(rings()):
        lines = kernel_lines(ring, "_RING", '"i"', 0)
        assert max(map(len, lines)) <= 100, max(lines, key=len)
        text = "\n".join((f"from a import {names}, {more}", "", "", *lines, ""))
        (tmp_path / f"m{number}.py").write_text(text)
    fixed = ["ruff", "check", "--isolated", "--line-length", "100", "--fix", "--select", "I,F401"]
    for words in (fixed, FORMATTED, LINTED):
        command = [sys.executable, "-m", *words, str(tmp_path)]
        run = subprocess.run(command, capture_output=True, text=True)
        assert run.returncode == 0, run.stdout[-3000:]
