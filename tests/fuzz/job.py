"""What a worker is asked, and what it answers."""

from __future__ import annotations

import base64
import pickle
from dataclasses import dataclass

from .case import BACKENDS, Case, JaxUse, TorchUse, VerifyUse

VERIFY = "verify "
KINDS = ("jax", "jax_x64", "torch", *(VERIFY + backend for backend in BACKENDS))
"""Of workers: by what they import, and how it is set; those of `shardwright verify`."""


@dataclass(frozen=True)
class Job:
    """A case to run; `fault`: what to replace in its module by what, to see that it is found."""

    case: Case
    fault: tuple[str, str] | None = None

    @property
    def kind(self) -> str:
        """The kind of worker that runs it; JAX's interpreter keeps what the other width left."""
        match self.case.use:
            case TorchUse():
                return "torch"
            case JaxUse(x64=x64):
                return "jax_x64" if x64 else "jax"
            case VerifyUse():
                return VERIFY + self.case.backend

    def to_line(self) -> str:
        """A line that `from_line` reads back."""
        return base64.b64encode(pickle.dumps(self)).decode()

    @staticmethod
    def from_line(line: str) -> Job:
        """The job of a line."""
        job = pickle.loads(base64.b64decode(line))
        assert isinstance(job, Job)
        return job


@dataclass(frozen=True)
class Verdict:
    """How a case ended.

    `verdict`: "ok"; "wrong", its results differ; "failed", it raised or hung; "refused" and
    "pending", as `refusals` lists.
    """

    case: Case
    verdict: str
    detail: str
    seconds: float

    @property
    def bad(self) -> bool:
        """Whether it may not be."""
        return self.verdict in ("wrong", "failed")
