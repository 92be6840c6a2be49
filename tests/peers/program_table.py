"""Writes `bench/programs.md`, a table by library, from the lines that `program_process.py` printed.

python tests/peers/program_table.py LOG ...

Of several lines for a program and mode, the last counts. Rows of libraries that no log has stay as
they are, with the date of their run. Exits with 1 if a program is wrong.
"""

from __future__ import annotations

import sys
from collections import Counter
from datetime import date
from importlib import metadata
from pathlib import Path

LIBRARIES = {
    "linen": "flax",
    "flax": "flax",
    "nnx": "flax",
    "hf": "transformers",
    "e3nn": "e3nn-jax",
    "pix": "dm-pix",
    "haiku": "dm-haiku",
}
"""The library of programs that are not called by it."""
HEAD = (
    *("library", "version", "run", "programs"),
    *("right, as Shardy", "right, cheapest", "refused", "wrong"),
)
KINDS = ("right", "refused", "wrong")
RESULT = Path(__file__).parents[2] / "bench" / "programs.md"


def _library(name: str) -> str:
    prefix = name.partition("_")[0]
    return LIBRARIES.get(prefix, prefix)


def _rows() -> dict[str, list[str]]:
    """Read the rows of the table that is there, by library."""
    text = RESULT.read_text("utf-8") if RESULT.exists() else ""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {name: cells for name, *cells in lines if name not in ("library", "all")}


def main() -> None:
    found: dict[tuple[str, str], tuple[str, str]] = {}
    for log in sys.argv[1:]:
        for line in Path(log).read_text("utf-8").splitlines():
            parts = line.split("\t")
            if len(parts) == 5 and parts[2] in KINDS:
                found[parts[0], parts[1]] = parts[2], parts[4]
    counts = Counter((_library(name), mode, kind) for (name, mode), (kind, _) in found.items())
    notes = [
        f"- `{name}`, {mode}: {kind}: {said}"
        for (name, mode), (kind, said) in found.items()
        if kind != "right"
    ]
    rows = _rows()
    lines = [
        "# Programs of public libraries",
        "",
        f"Made by `tests/peers/program_table.py` with jax {metadata.version('jax')}.",
        "Each program is partitioned and emitted for 8 CPU devices (d=4, t=2) and compared with",
        "one device, values and gradients. Programs that no column counts were not run in that",
        "mode.",
        "",
        f"| {' | '.join(HEAD)} |",
        "|" + "---|" * len(HEAD),
    ]
    for library in {library for library, _, _ in counts}:
        of = {(m, k): n for (x, m, k), n in counts.items() if x == library}
        right = [of.get((mode, "right"), 0) for mode in ("as_shardy", "cheapest")]
        programs = len({name for name, _ in found if _library(name) == library})
        rest = [sum(n for (_, k), n in of.items() if k == kind) for kind in KINDS[1:]]
        day = date.today().isoformat()
        rows[library] = [metadata.version(library), day, *map(str, (programs, *right, *rest))]
    lines += [f"| {' | '.join((library, *rows[library]))} |" for library in sorted(rows)]
    totals = [sum(map(int, column)) for column in [*zip(*rows.values(), strict=True)][2:]]
    lines.append(f"| all | | | {' | '.join(map(str, totals))} |")
    if notes:
        lines += ["", *notes]
    RESULT.write_text("\n".join(lines) + "\n", "utf-8")
    sys.exit(any(kind == "wrong" for _, _, kind in counts))


if __name__ == "__main__":
    main()
