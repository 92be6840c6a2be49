"""Run cases of the fuzz from the command line: `python -m tests.fuzz --count 3000`."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from .case import BACKENDS
from .features import describe, features
from .generate import case_of
from .job import Job, Verdict
from .pool import run_all


def main() -> int:
    """Exit code 1 where a case is wrong or failed."""
    chosen = _parser().parse_args()
    ids = chosen.id or range(chosen.start, chosen.start + chosen.count)
    cases = [case_of(number) for number in ids]
    if chosen.backend:
        cases = [case for case in cases if case.backend == chosen.backend]
    if chosen.feature:
        cases = [case for case in cases if set(chosen.feature) <= features(case)]
    if chosen.without:
        cases = [case for case in cases if not set(chosen.without) & features(case)]
    if chosen.id:
        print("\n".join(describe(case) for case in cases))
    start = time.perf_counter()
    made = run_all([Job(case) for case in cases], chosen.jobs, _said)
    print(summary(made))
    print(f"{len(made)} cases, ids {min(ids)} to {max(ids)}, {time.perf_counter() - start:.0f} s")
    return int(any(each.bad for each in made))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--id", type=int, action="append", help="run this case and print it")
    parser.add_argument("--start", type=int, default=0, help="the first id")
    parser.add_argument("--count", type=int, default=300, help="how many ids from there")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--backend", choices=BACKENDS, help="only cases of this backend")
    parser.add_argument("--feature", action="append", help="only cases that have it")
    parser.add_argument("--without", action="append", help="only cases that do not have it")
    return parser


def _said(made: Verdict) -> None:
    if made.bad:
        print(f"{made.verdict}: {made.detail}\n  {describe(made.case)}", flush=True)


def summary(made: list[Verdict]) -> str:
    """How many cases of each backend ended how, and how long they took."""
    lines = []
    for backend in BACKENDS:
        own = [each for each in made if each.case.backend == backend]
        ended = Counter(each.verdict for each in own)
        said = ", ".join(f"{count} {verdict}" for verdict, count in sorted(ended.items()))
        if own:
            lines.append(f"{backend}: {said}; {sum(e.seconds for e in own) / len(own):.2f} s each")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
