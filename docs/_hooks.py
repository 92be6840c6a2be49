"""What mkdocs does while it builds: print the help of commands where pages ask for it."""

from __future__ import annotations

import re
from typing import Any

from typer.main import get_command

from shardwright.codegen.cli import app

MARK = re.compile(r"^<!-- help of ([a-z]+) -->$", re.MULTILINE)
COLUMNS = 88


def help_of(name: str) -> str:
    """Return what `shardwright NAME --help` prints."""
    group: Any = get_command(app)
    context = group.make_context("shardwright", [name], resilient_parsing=True)
    command = group.get_command(context, name)
    inner = type(context)(
        command,
        parent=context,
        info_name=name,
        terminal_width=COLUMNS,
        max_content_width=COLUMNS,
    )
    return str(command.get_help(inner))


def on_page_markdown(markdown: str, **_: object) -> str:
    """Put the help of a command in place of each comment that asks for it."""
    return MARK.sub(lambda found: f"```text\n{help_of(found[1])}\n```", markdown)
