"""The bytes that the busiest device receives in programs with extents that axes do not divide.

Each row is a loss of a sequence of 512 rows that is split over 8 devices (`tests/uneven_rows.py`),
or its gradient. Slices, windows and concatenations in it make values of other extents. The columns
are those of `program_bytes`, in bytes.
"""

from __future__ import annotations

from bench import program_bytes

LINE = "from bench.uneven_bytes import measured; measured(%r)"


def measured(column: str) -> None:
    """Print a line of JSON for each program: its name, and the bytes in one column, or null."""
    program_bytes.measured(column, _cases)


def _cases(column: str) -> program_bytes.Cases:
    import uneven_rows

    yield from program_bytes.of_patterns(column, uneven_rows.patterns())


def main() -> None:
    print("| program | as_shardy | cheapest | XLA, CPU | XLA, v5e | Shardy's passes |")
    print("|---|--:|--:|--:|--:|--:|")
    for name, *figures in program_bytes.rows(LINE):
        shown = ("–" if each is None else f"{round(each * 2**20):,}" for each in figures)
        print(f"| {name} | {' | '.join(shown)} |")
