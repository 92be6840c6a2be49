"""How many lines of code a reviewer of a module must read: its own, and those of all support
modules that its self-check loads.

Comments, docstrings and blank lines do not count. Every module of `generated/` runs in a separate
process, as `python -m` runs it; `sys.modules` lists the modules that it loaded. Then all modules
are emitted again with every feature and counted too. The table is written to `trust.md`.
"""

from __future__ import annotations

import ast
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterator
from pathlib import Path

from shardwright.codegen import registry
from shardwright.codegen.spec.features import FEATURES
from shardwright.codegen.spec.manifest import SUPPORT

ROOT = Path(__file__).parents[1]
RESULT = Path(__file__).parent / "trust.md"
BLANK = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    tokenize.ENDMARKER,
}
RUN = """
import runpy, sys
try:
    runpy.run_module(sys.argv[1], run_name="__main__")
except SystemExit as end:
    print(end, file=sys.stderr)
for module in list(sys.modules.values()):
    print(getattr(module, "__file__", None) or "")
"""


def code_lines(text: str) -> int:
    """Return the number of lines of code in a module."""
    said: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        match getattr(node, "body", None):
            case [ast.Expr(value=ast.Constant(value=str())) as first, *_]:
                said.update(range(first.lineno, (first.end_lineno or 0) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in BLANK:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - said)


def loaded(module: Path) -> dict[str, int]:
    """Return the number of code lines of a module, and of each support file that its self-check
    loads, by file name."""
    home = module.parents[1]
    name = f"{home.name}.{module.parent.name}.{module.stem}"
    run = subprocess.run(
        [sys.executable, "-c", RUN, name],
        cwd=home.parent,
        env=os.environ | {"JAX_PLATFORMS": "cpu", "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    support = {Path(line) for line in run.stdout.splitlines() if f"/{SUPPORT}/" in line}
    return {path.stem: code_lines(path.read_text()) for path in sorted({module, *support})}


def measured(home: Path) -> Iterator[tuple[str, list[tuple[int, str]]]]:
    """Yield each backend with the number of code lines and the name of every bundle in a folder, in
    ascending order."""
    for backend in registry.NAMES:
        modules = sorted(home.glob(f"*/{backend}.py"))
        rows = sorted((sum(loaded(each).values()), each.parent.name) for each in modules)
        if rows:
            yield backend, rows


def with_all_features(folder: Path) -> Path:
    """Emit the bundles of `generated/` again with every feature, and return their folder."""
    corpus = (str(ROOT / "corpus" / f"{name}.toml") for name in ("reshards", "examples"))
    lines = [f"include = {json.dumps([*corpus])}", 'out = "generated"', "", "[defaults]"]
    lines.append(f"features = {json.dumps([*FEATURES])}")
    (folder / "shardwright.toml").write_text("\n".join([*lines, ""]))
    command = [sys.executable, "-m", "shardwright", "emit"]
    subprocess.run(command, cwd=folder, capture_output=True, check=True)
    return folder / "generated"


def main() -> None:
    lines = ["| backend | features | bundles | median | most | in |", "|---|---|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as folder:
        homes = {"default": ROOT / "generated", "all": with_all_features(Path(folder))}
        for features, home in homes.items():
            for backend, rows in measured(home):
                median, (most, where) = statistics.median(size for size, _ in rows), rows[-1]
                numbers = f"{len(rows)} | {median:.0f} | {most} | {where}"
                lines.append(f"| `{backend}` | {features} | {numbers} |")
    title = "# Code lines of a module and of all support that its self-check loads"
    text = "\n".join([title, "", "`python -m bench trust` writes this table.", "", *lines, ""])
    print(text)
    RESULT.write_text(text)
