"""Run all parts or, in a process that a part starts, the cases of that part."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

from bench.gpu_check.home import DRY, NAMES, WORKERS, torch
from bench.gpu_check.page import PAGE
from bench.parts.attempt import attempt_all
from bench.parts.report import Report, chosen, output, printed
from bench.parts.run import Command, Part

NAME = "gpu_check"
SECONDS = {"values": 95, "copies": 40, "gemm": 40, "ranks": 60, "sanitize": 60}
"""The time limit of each part in seconds; 295 s in total."""

SECONDS_DRY = 580


def parts(store: str) -> list[Part]:
    """Return all parts. `store`: a file through which the ranks of a group connect."""
    from bench.gpu_check import ranks, sanitize

    def part(name: str, *commands: Command, env: dict[str, str] | None = None) -> Part:
        return Part(name, commands, SECONDS_DRY if DRY else SECONDS[name], env or {})

    workers = [_itself("values", str(number), str(WORKERS)) for number in range(WORKERS)]
    members = [_itself("rank", str(number), store) for number in range(ranks.RANKS)]
    checks = [_sanitized(*check) for check in sanitize.CHECKS]
    return [
        part("values", *workers),
        part("copies", _itself("copies")),
        part("gemm", _itself("gemm")),
        part("ranks", *members, env=ranks.ENV),
        part("sanitize", *checks, env=sanitize.ENV),
    ]


def _itself(*words: str) -> Command:
    return Command(" ".join(words), (sys.executable, "-m", "bench.gpu_check", *words))


def _sanitized(tool: str, what: str, exits: int) -> Command:
    """Return a command that runs `tiny WHAT` under a tool of compute-sanitizer or, in a dry run,
    without the tool."""
    itself = _itself("tiny", what).words
    under = ("compute-sanitizer", "--tool", tool, "--error-exitcode", "9")
    words = itself if DRY else (*under, *itself)
    return Command(f"{tool} of {what}", words, exits, counts=True)


def about() -> dict[str, str]:
    """Return facts about the run, by name: the machine, the date and the versions."""
    import triton

    device = {"": "no GPU, in Triton's interpreter"}
    if not DRY:
        found = torch.cuda.get_device_properties(0)
        device = {"": f"{found.name}, {found.multi_processor_count} multiprocessors"}
    versions = {"torch": torch.__version__, "triton": triton.__version__}
    python = {"Python": sys.version.split()[0]}
    return device | {"on": time.strftime("%Y-%m-%d")} | versions | python


def main() -> None:
    """Run the parts, and exit with status 1 if anything is wrong."""
    if not DRY and not torch.cuda.is_available():
        raise SystemExit("torch finds no GPU; set GPU_CHECK_DRY=1 to run in Triton's interpreter")
    with tempfile.TemporaryDirectory() as folder:
        wanted = chosen(parts(f"{folder}/store"), "GPU_CHECK_PARTS")
        if not DRY and shutil.which("compute-sanitizer") is None:
            print("sanitize is left out: there is no compute-sanitizer", flush=True)
            wanted = [part for part in wanted if part.name != "sanitize"]
        report = Report(output(NAME), NAME, PAGE, about())
        right = report.run(wanted)
    print(f"see {report.folder / NAME}.md")
    raise SystemExit(not right)


def run_cases(what: str, *given: str) -> None:
    from bench.gpu_check import copies, gemm, ranks, sanitize, values

    if what == "values":
        mine, workers = map(int, given)
        attempt_all(what, list(values.jobs())[mine::workers], NAMES)
    elif what in ("copies", "gemm"):
        attempt_all(what, {"copies": copies, "gemm": gemm}[what].jobs(), NAMES)
    elif what == "rank":
        ranks.rank(int(given[0]), given[1])
    else:
        sanitize.WHAT[given[0]]()


if __name__ == "__main__":
    words = sys.argv[1:]
    if words[:1] == ["--table"]:
        print(printed(PAGE, Path(words[1])), end="")
    elif words:
        run_cases(*words)
    else:
        main()
