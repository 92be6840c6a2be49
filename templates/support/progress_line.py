"""A progress bar on a terminal for long calls."""

import contextlib
import sys
import time

WAIT_S = 1.0  # delay in seconds before the bar is drawn
WIDTH = 30


def shown(progress, draws):
    """Return the function to call after each bucket: `progress` if given, else a `Bar` if
    `draws` is true and stderr is a terminal, else None."""
    terminal = progress is None and draws and sys.stderr is not None and sys.stderr.isatty()
    return Bar(sys.stderr) if terminal else progress


class Bar:
    """A line that shows the share of bytes done, and is removed at the end. Called like
    `progress`."""

    def __init__(self, file):
        self.file, self.began = file, time.monotonic()

    def __call__(self, done, total, bucket):
        seconds = time.monotonic() - self.began
        if seconds < WAIT_S:
            return
        full = WIDTH * done // max(total, 1)
        bar = "#" * full + "." * (WIDTH - full)
        said = f"bucket {bucket} [{bar}] {done / 1e9:.2f} of {total / 1e9:.2f} GB, {seconds:.0f} s"
        with contextlib.suppress(OSError):
            self.file.write(f"\r\033[K{said}" if done < total else "\r\033[K")
            self.file.flush()
