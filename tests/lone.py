"""Modules that stand alone, with their support modules in them."""

from __future__ import annotations

from functools import partial

from shardwright.codegen.backends.base import Request
from shardwright.codegen.backends.pallas_tpu import context as pallas_tpu
from shardwright.codegen.backends.pallas_tpu.strategy import FormChoice
from shardwright.codegen.emit.modules import parts
from shardwright.codegen.emit.single_file import single_file
from shardwright.codegen.emit.support import support_text
from shardwright.ir.plan import Plan

MADE_BY = "shardwright emit"


def alone(made: Plan, backend: str) -> str:
    """The text of a plan's module."""
    return parts(made, backend, MADE_BY, single_file=True)[0].text


def alone_in_form(made: Plan, choice: FormChoice) -> str:
    """The text of a plan's Pallas module in a form."""
    text = pallas_tpu.printed(Request(made, MADE_BY), choice)
    return single_file(text, partial(support_text, (pallas_tpu.NAME,)))
