"""Progress, on standard error so that what a command prints stays clean: a bar on a terminal, and
elsewhere a line now and then."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

Show = Callable[[int, int, str], None]
"""Called as show(done, total, last), `last` being what was done last."""

PATIENCE = 2.0
"""Seconds after which something is shown, even where there is one thing to do."""
EVERY = 10.0
"""Seconds between two lines, where there is no terminal and nothing new."""

_quiet = False


def be_quiet(quiet: bool) -> None:
    """Show no progress from now on, or show it again."""
    global _quiet
    _quiet = quiet


@contextlib.contextmanager
def bar(title: str) -> Iterator[Show]:
    """Yield what shows progress, by a display that is gone on an error."""
    console = Console(stderr=True)
    display: _Bar | _Lines = _Bar(title, console) if console.is_terminal else _Lines(title)
    if _quiet:
        yield lambda done, total, last: None
        return
    ended = threading.Event()
    watch = threading.Thread(target=_watch, args=(display, ended), daemon=True)
    watch.start()
    try:
        yield display.show
    except BaseException:
        ended.set()
        watch.join()
        display.end(failed=True)  # an error is the only message
        raise
    ended.set()
    watch.join()
    display.end(failed=False)


def _watch(display: _Bar | _Lines, ended: threading.Event) -> None:
    """Let a display show that something goes on, until it has ended."""
    while not ended.wait(PATIENCE):
        display.wait()


class _Bar:
    """A bar on a terminal: up from the first call for more than one thing to do, and for one that
    takes its time."""

    def __init__(self, title: str, console: Console) -> None:
        self._display = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[last]}", markup=False),
            console=console,
        )
        self._task = self._display.add_task(title, total=None, last="")
        self._started = False
        self._lock = threading.Lock()

    def show(self, done: int, total: int, last: str) -> None:
        """Show how many things are done."""
        self._display.update(self._task, completed=done, total=total, last=last)
        if total > 1:
            self.wait()

    def wait(self) -> None:
        """Put the bar up, which then moves by itself."""
        with self._lock:
            if not self._started:
                self._started = True
                self._display.start()

    def end(self, *, failed: bool) -> None:
        """Take the bar down; leave no trace where it failed."""
        self._display.live.transient = failed
        if self._started:
            self._display.stop()


class _Lines:
    """Lines, at most one in PATIENCE seconds, and one in EVERY where nothing happens."""

    def __init__(self, title: str) -> None:
        self._title, self._begun = title, time.monotonic()
        self._done, self._total, self._last = 0, 0, ""
        self._said, self._at = "", self._begun
        self._lock = threading.Lock()

    def show(self, done: int, total: int, last: str) -> None:
        """Show how many things are done, if the last line is not too recent."""
        self._done, self._total, self._last = done, total, last
        if time.monotonic() - self._at >= PATIENCE:
            self._say()

    def wait(self) -> None:
        """Say that it goes on: what is new, or now and then how long it has been."""
        since = time.monotonic() - self._at
        if since >= EVERY or (since >= PATIENCE and self._counted() != self._said):
            self._say()

    def end(self, *, failed: bool) -> None:
        """Say how much was done, where it took time."""
        if not failed and time.monotonic() - self._begun >= PATIENCE:
            self._say()

    def _counted(self) -> str:
        count = f" {self._done} of {self._total}" if self._total else ""
        return f"{self._title}{count}{f': {self._last}' if self._last else ''}"

    def _say(self) -> None:
        with self._lock:
            self._said, self._at = self._counted(), time.monotonic()
            seconds = self._at - self._begun
            print(f"{self._said} ({seconds:.0f} s)", file=sys.stderr, flush=True)
