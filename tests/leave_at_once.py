"""Run a program of torch as Python does, and leave without Python's own end.

    python tests/leave_at_once.py <script or -m module> <its arguments>

Where a program has made a DTensor, threads of torch 2.13's gloo groups outlive
`destroy_process_group`, since caches of DTensor keep its mesh. One of them that drops a tensor
while Python 3.11 ends aborts the process ("terminate called without an active exception";
https://github.com/pytorch/pytorch/pull/179291 gives the cause). It is so without a line of this
project: 11 of 45 runs of six processes, where those threads got little time.
"""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from pathlib import Path


def main(words: list[str]) -> int:
    """Run a program to its last line; return its exit status."""
    try:
        if words[0] == "-m":
            sys.argv = words[1:]
            sys.path[0] = str(Path.cwd())
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = words
            sys.path[0] = str(Path(words[0]).resolve().parent)
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
