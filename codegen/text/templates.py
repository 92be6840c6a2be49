"""Render templates with jinja, and locate their errors."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from pprint import pformat
from typing import TYPE_CHECKING

from shardwright.codegen.text.python_text import WIDTH
from shardwright.ir.dump import VARIABLE, dump
from shardwright.ir.errors import InternalError

if TYPE_CHECKING:  # planning must not load jinja
    import jinja2


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("shardwright.templates", "."),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def render(template: str, context: object) -> str:
    """Return the text of a template. The only name in it is `m`, the context.

    Raises InternalError if the context lacks a name that the template uses; the message shows the
    template's line and its neighbours.
    """
    import jinja2

    if VARIABLE in os.environ:
        dump("context", f"{template}\n{pformat(context, width=WIDTH)}\n")
    try:
        return _environment().get_template(template).render(m=context)
    except jinja2.TemplateError as error:
        raise InternalError(_located(template, error)) from error


def _located(template: str, error: jinja2.TemplateError) -> str:
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.endswith(".jinja"):
            path = Path(trace.tb_frame.f_code.co_filename)
            template, line = f"{path.parent.name}/{path.name}", trace.tb_lineno
        trace = trace.tb_next
    line = getattr(error, "lineno", None) or line
    loader = _environment().loader
    text = loader.get_source(_environment(), template)[0].splitlines() if loader else []
    near = range(max(line - 2, 1), min(line + 2, len(text)) + 1)
    shown = [f"{'>' if n == line else ' '} {n:4} {text[n - 1]}" for n in near]
    return "\n".join([f"{template}, line {line}: {error}", *shown])
