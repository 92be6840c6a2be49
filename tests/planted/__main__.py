"""Plant faults from the command line: `python -m tests.planted --seed 7`, `--all`, `--name X`."""

from __future__ import annotations

import argparse
import random
import sys

from .fault import found
from .table import FAULTS

FEW = 5


def main() -> int:
    """Exit code 1 where `verify` does not find a fault."""
    names = _chosen(_parser().parse_args())
    missed = 0
    for name, said in zip(names, found([FAULTS[name] for name in names]), strict=True):
        print(f"{name}: {said or 'NOT FOUND'}")
        missed += not said
    print(f"{len(names) - missed} of {len(names)} faults found")
    return int(missed > 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.planted", description=__doc__)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seed", type=int, default=0, help="draw a few faults by this number")
    which.add_argument("--all", action="store_true", help="plant every fault")
    which.add_argument("--name", action="append", choices=FAULTS, help="plant this fault")
    parser.add_argument("--backend", help="with --all: only faults of this backend")
    return parser


def _chosen(given: argparse.Namespace) -> list[str]:
    if given.name:
        return list(given.name)
    if given.all:
        return [name for name, fault in FAULTS.items() if given.backend in (None, fault.backend)]
    return random.Random(given.seed).sample(sorted(FAULTS), FEW)


if __name__ == "__main__":
    sys.exit(main())
