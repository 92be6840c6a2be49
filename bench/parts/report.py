"""Run one part after another, and write the rows and the table after each, so that a later hang
loses nothing."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.parts.attempt import Row
from bench.parts.run import Part, run
from bench.parts.table import Page, count, markdown


@dataclass(frozen=True)
class Report:
    """The files of results, `NAME.json` and `NAME.md` in `folder`. `page`: the format of the table;
    `about`: facts about the run."""

    folder: Path
    name: str
    page: Page
    about: Mapping[str, str]

    def write(self, rows: Sequence[Row]) -> None:
        """Write the results so far."""
        self.folder.mkdir(parents=True, exist_ok=True)
        data = {"about": dict(self.about), "rows": list(rows)}
        (self.folder / f"{self.name}.json").write_text(json.dumps(data, indent=1) + "\n")
        (self.folder / f"{self.name}.md").write_text(markdown(self.page, self.about, rows))

    def run(self, parts: Sequence[Part]) -> bool:
        """Run the parts one after another, and write the results after each. Return whether all
        cases are right."""
        start, rows = time.monotonic(), []
        for part in parts:
            began = time.monotonic()
            mine = run(part)
            rows += mine
            self.write(rows)
            now = time.monotonic()
            took = f"{now - began:.0f} s, {now - start:.0f} s in all"
            print(f"{part.name}: {count(mine)}; {took}", flush=True)
            for row in mine:
                if row["ok"] is False:
                    print(f"  {row['name']}: {row['error']}", flush=True)
        return all(row["ok"] is not False for row in rows)


def output(name: str) -> Path:
    """Return the folder for results: $OUT or, if that is not set, `build/NAME`."""
    return Path(os.environ.get("OUT") or Path("build") / name)


def chosen(parts: Sequence[Part], variable: str) -> list[Part]:
    """Return the parts that an environment variable names, separated by commas, or all parts if it
    is empty."""
    named = [name for name in os.environ.get(variable, "").split(",") if name]
    known = {part.name: part for part in parts}
    for name in named:
        if name not in known:
            raise SystemExit(f"{variable}: unknown part {name!r}: expected {', '.join(known)}")
    return [known[name] for name in named] if named else list(parts)


def printed(page: Page, path: Path) -> str:
    """Return the page for the rows in a JSON file written earlier."""
    data = json.loads(path.read_text())
    return markdown(page, data["about"], data["rows"])
