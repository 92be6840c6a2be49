"""Progress bars, on standard error so that what a command prints stays clean."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

Show = Callable[[int, int, str], None]
"""Called as show(done, total, last), `last` being what was done last."""


@contextlib.contextmanager
def bar(title: str) -> Iterator[Show]:
    """Yield a progress bar: up from the first call for more than one thing to do, gone on an
    error."""
    display = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[last]}", markup=False),
        console=Console(stderr=True),
    )
    task = display.add_task(title, total=None, last="")
    started = False

    def show(done: int, total: int, last: str) -> None:
        nonlocal started
        display.update(task, completed=done, total=total, last=last)
        if total > 1 and not started:
            started = True
            display.start()

    try:
        yield show
    except BaseException:
        display.live.transient = True  # an error is the only message
        display.live.stop()
        raise
    if started:
        display.stop()
