"""Modules of plans: as text with their support modules in it, and as files beside theirs."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from shardwright.codegen.backends.base import Request
from shardwright.codegen.backends.pallas_tpu import context as pallas_tpu
from shardwright.codegen.backends.pallas_tpu.strategy import FormChoice
from shardwright.codegen.operations.emit.modules import parts
from shardwright.codegen.spec.manifest import SUPPORT
from shardwright.codegen.text.single_file import single_file
from shardwright.codegen.text.support import support_files, support_text
from shardwright.ir.plan import Plan

MADE_BY = "shardwright emit"


def alone(made: Plan, backend: str) -> str:
    """The text of a plan's module."""
    return parts(made, backend, MADE_BY, single_file=True)[0].text


def alone_in_form(made: Plan, choice: FormChoice) -> str:
    """The text of a plan's Pallas module in a form."""
    text = pallas_tpu.printed(Request(made, MADE_BY), choice)
    return single_file(text, partial(support_text, (pallas_tpu.NAME,)))


def write_bundle(made: Plan, backend: str, home: Path, features: tuple[str, ...] = ()) -> Path:
    """Write the module of a plan, with its backward, into a folder, and what they import beside it.

    Returns the module's path.
    """
    home.mkdir()
    for part in parts(made, backend, MADE_BY, gradient=True, features=features):
        (home / part.file).write_text(part.text)
    support = home.parent / SUPPORT
    support.mkdir(exist_ok=True)
    for name, text in support_files((backend,)).items():
        (support / name).write_text(text)
    return home / f"{backend}.py"
