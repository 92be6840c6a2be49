"""The task of a worker process: one program to compile for one target."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

What = Literal["module", "x64", "xla", "group", "matmul", "x64_matmul", "xla_matmul"]


@dataclass(frozen=True)
class Job:
    """One program to compile.

    `what`: the emitted module, with `jax_enable_x64` off or on; XLA's own reshard of the same
    arrays; the module of a group; the module of a matmul, with `jax_enable_x64` off or on; or jit's
    own matmul of the same arrays. `backend`: the backend whose compiler is used; `emitted`: the
    backend of the module; `module`: its path; `files`: the path for the results, without suffix, or
    None; `nested`: whether a side is cut by torch's rule; `aside`: whether to run on the topology's
    last device in place of the last device that would otherwise take part.
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
        """Parse a line written by `to_json`."""
        return Job(**json.loads(line))
