"""What a worker process is asked: one program to compile for one target."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

What = Literal["module", "x64", "xla", "group", "matmul", "x64_matmul", "xla_matmul"]


@dataclass(frozen=True)
class Job:
    """Compile one program.

    `what`: the emitted module; that module with `jax_enable_x64` on, where it is off otherwise;
    XLA's own reshard of the same arrays; the module of a group; that of a matmul, that with
    `jax_enable_x64` on, or jit's own matmul of the same arrays. `backend` is the one whose compiler
    is asked, `emitted` the one that the module is of. `module` is the file; `files` the path below
    which to save the results, without its ending, or None; `nested` whether a side is split as
    torch does; `aside` whether the topology's last device takes the place of the last of the first
    devices, which the program is for otherwise.
    """

    what: What
    backend: str
    emitted: str
    module: str
    target: str
    files: str | None = None
    nested: bool = False
    aside: bool = False

    def to_json(self) -> str:
        """Return one line of JSON; `from_json` reads it back."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(line: str) -> Job:
        """Return the job of a line that `to_json` wrote."""
        return Job(**json.loads(line))
