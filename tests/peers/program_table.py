"""Makes a table of what `program_process.py` printed, by libraries.

python tests/peers/program_table.py LOG ...
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
KINDS = ("right", "refused", "wrong")


def main() -> None:
    counts: Counter[tuple[str, str, str]] = Counter()
    notes = []
    for log in sys.argv[1:]:
        for line in Path(log).read_text("utf-8").splitlines():
            parts = line.split("\t")
            if len(parts) != 5 or parts[2] not in KINDS:
                continue
            name, mode, kind, _, said = parts
            prefix = name.partition("_")[0]
            counts[LIBRARIES.get(prefix, prefix), mode, kind] += 1
            if kind != "right":
                notes.append(f"- `{name}`, {mode}: {kind}: {said}")
    libraries = sorted({library for library, _, _ in counts})
    print("# Programs of public libraries\n")
    print(f"Made by `make peers` on {date.today().isoformat()} with jax {metadata.version('jax')}:")
    print("each program is partitioned and emitted for 8 CPU devices (d=4, t=2) and compared with")
    print("one device, values and gradients.\n")
    print("| library | version | programs | right, as Shardy | right, cheapest | refused | wrong |")
    print("|---|---|---|---|---|---|---|")
    for library in libraries:
        of = {(m, k): n for (x, m, k), n in counts.items() if x == library}
        right = [of.get((mode, "right"), 0) for mode in ("as_shardy", "cheapest")]
        programs = sum(n for (mode, _), n in of.items() if mode == "as_shardy")
        rest = [sum(n for (_, k), n in of.items() if k == kind) for kind in KINDS[1:]]
        cells = [library, metadata.version(library), programs, *right, *rest]
        print(f"| {' | '.join(map(str, cells))} |")
    totals = [
        sum(n for (_, m, k), n in counts.items() if (m, k) == each)
        for each in (("as_shardy", "right"), ("cheapest", "right"))
    ]
    every = sum(n for (_, m, _), n in counts.items() if m == "as_shardy")
    rest = [sum(n for (_, _, k), n in counts.items() if k == kind) for kind in KINDS[1:]]
    print(f"| all | | {' | '.join(map(str, (every, *totals, *rest)))} |")
    if notes:
        print("\n" + "\n".join(notes))


if __name__ == "__main__":
    main()
