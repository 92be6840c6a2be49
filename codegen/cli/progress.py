"""Progress on standard error: a bar on a terminal, occasional lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

Show = Callable[[int, int, str], None]
"""Called as show(done, total, last), where `last` is the item just finished."""

PATIENCE = 2.0
"""How long a single item must take before progress is shown, in seconds."""
EVERY = 10.0
"""The seconds between two lines when there is no terminal and no progress."""

_quiet = False


def be_quiet(quiet: bool) -> None:
    """Turn the display of progress off or on."""
    global _quiet
    _quiet = quiet


@contextlib.contextmanager
def bar(title: str) -> Iterator[Show]:
    """Yield a function that shows progress. An error removes the display."""
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
        display.end(failed=True)  # the error is the only message
        raise
    ended.set()
    watch.join()
    display.end(failed=False)


def _watch(display: _Bar | _Lines, ended: threading.Event) -> None:
    """Refresh a display until the work ends."""
    while not ended.wait(PATIENCE):
        display.wait()


class _Bar:
    """A bar on a terminal. It is shown from the first call if there are several items, or after a
    delay for one slow item."""

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
        self._display.update(self._task, completed=done, total=total, last=last)
        if total > 1:
            self.wait()

    def wait(self) -> None:
        """Start to draw the bar. It then refreshes itself."""
        with self._lock:
            if not self._started:
                self._started = True
                self._display.start()

    def end(self, *, failed: bool) -> None:
        """Remove the bar, without a trace if the work failed."""
        self._display.live.transient = failed
        if self._started:
            self._display.stop()


class _Lines:
    """Lines of text: at most one per PATIENCE seconds, and one per EVERY seconds without
    progress."""

    def __init__(self, title: str) -> None:
        self._title, self._begun = title, time.monotonic()
        self._done, self._total, self._last = 0, 0, ""
        self._said, self._at = "", self._begun
        self._lock = threading.Lock()

    def show(self, done: int, total: int, last: str) -> None:
        """Print the number of items done, unless the last line is too recent."""
        self._done, self._total, self._last = done, total, last
        if time.monotonic() - self._at >= PATIENCE:
            self._say()

    def wait(self) -> None:
        """Print new progress if there is any. Otherwise print the elapsed time every EVERY
        seconds."""
        since = time.monotonic() - self._at
        if since >= EVERY or (since >= PATIENCE and self._counted() != self._said):
            self._say()

    def end(self, *, failed: bool) -> None:
        """Print the total if the work took long."""
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
