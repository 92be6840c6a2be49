"""The process that times emitted modules: it reads one case per line and prints the seconds of its
calls, or the reason why there are none.

Started with the argument BACKEND, on whatever devices there are.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import asdict

from shardwright.codegen.checks.compare import MismatchError
from shardwright.codegen.checks.load import load
from shardwright.codegen.checks.timed import CannotTimeError
from shardwright.codegen.checks.workers.serve import Answer, serve
from shardwright.codegen.operations.verify.worker import brief, plain_case


def main(backend: str) -> None:
    """Time the cases on standard input, one per line, with a backend. Print one line of JSON for
    each."""
    serve(lambda: _timing(backend))


def _timing(backend: str) -> Answer:
    timer = importlib.import_module(f"shardwright.codegen.backends.{backend}.verify.timed")

    def answer(line: str) -> dict[str, object]:
        try:
            case = plain_case(line)
            seconds = timer.timed(load(case.module), case)
        except CannotTimeError as error:
            return {"verdict": "skipped", "detail": str(error)}
        except MismatchError as error:
            return {"verdict": "failed", "detail": str(error)}
        except Exception as error:
            return {"verdict": "failed", "detail": brief(error)}
        return {"verdict": "ok", "seconds": seconds, "hardware": asdict(timer.hardware())}

    return answer


if __name__ == "__main__":
    main(sys.argv[1])
