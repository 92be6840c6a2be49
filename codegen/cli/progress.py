"""Progress on the terminal: on standard error, and only where somebody looks at it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


@contextlib.contextmanager
def bar(title: str, total: int) -> Iterator[Callable[[str], None]]:
    """A progress bar over `total` things; call what it gives with the name of each one done."""
    with progress() as display:
        task = display.add_task(title, total=total, last="")
        yield lambda last: display.update(task, advance=1, last=last)


def progress() -> Progress:
    """The display of all our bars; a task has a field `last`, the name of what was done last."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[last]}"),
        console=Console(stderr=True),
        transient=True,
    )
