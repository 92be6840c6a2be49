"""Everything that is measured, one table each: `python -m bench [NAME ...]`."""

from __future__ import annotations

import sys

from bench import balance, speed

TABLES = {"speed": speed.main, "balance": balance.main}


def main(names: list[str]) -> None:
    """Print the tables named, or all."""
    unknown = [name for name in names if name not in TABLES]
    if unknown:
        raise SystemExit(f"no such table: {', '.join(unknown)}; there are {', '.join(TABLES)}")
    for name in names or TABLES:
        TABLES[name]()


main(sys.argv[1:])
