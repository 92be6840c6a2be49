"""Run all parts or, in a process that a part starts, the cases of that part."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from bench.parts.attempt import attempt_all
from bench.parts.report import Report, chosen, output, printed
from bench.parts.run import Command, Part
from bench.tpu_check.home import DRY, NAMES, count, jax
from bench.tpu_check.page import PAGE

NAME = "tpu_check"
SECONDS = {"values": 280, "times": 200}
"""The time limit of each part, in seconds."""

SECONDS_DRY = 580
ASKED = 120
"""The time limit, in seconds, for finding out the kind and number of the chips."""


def _itself(*words: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "bench.tpu_check", *words)


def parts() -> list[Part]:
    return [
        Part(name, (Command(name, _itself(name)),), SECONDS_DRY if DRY else seconds)
        for name, seconds in SECONDS.items()
    ]


def about() -> dict[str, str]:
    """Return facts about the run, by name: the machine, the date and the versions. From then on,
    this process occupies the chips."""
    platform = jax.default_backend()
    if not DRY and platform != "tpu":
        raise SystemExit(
            f"JAX finds no TPU, only {platform}; set TPU_CHECK_DRY=1 to run on CPU devices"
        )
    kind = "CPU devices, kernels interpreted" if DRY else jax.devices()[0].device_kind
    versions = {"jax": jax.__version__, "Python": sys.version.split()[0]}
    return {"": f"{count()} {kind}", "on": time.strftime("%Y-%m-%d"), **versions}


def main() -> None:
    """Run the parts, and exit with status 1 if anything is wrong."""
    wanted = chosen(parts(), "TPU_CHECK_PARTS")
    # A process that asks occupies the chips until it ends, and the parts need them.
    asked = subprocess.run(_itself("about"), stdout=subprocess.PIPE, text=True, timeout=ASKED)
    if asked.returncode:
        raise SystemExit(asked.returncode)
    report = Report(output(NAME), NAME, PAGE, json.loads(asked.stdout.splitlines()[-1]))
    right = report.run(wanted)
    print(f"see {report.folder / NAME}.md")
    raise SystemExit(not right)


def run_cases(what: str) -> None:
    if what == "about":
        print(json.dumps(about()))
        return
    from bench.tpu_check import times, values

    attempt_all(what, {"values": values, "times": times}[what].jobs(), NAMES)


if __name__ == "__main__":
    words = sys.argv[1:]
    if words[:1] == ["--table"]:
        print(printed(PAGE, Path(words[1])), end="")
    elif words:
        run_cases(*words)
    else:
        main()
