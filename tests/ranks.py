"""Processes of a group, each a script with some of the devices, that are all asked the same."""

from __future__ import annotations

import contextlib
import secrets
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from shardwright.codegen.checks.matmul_case import MatmulCase
from shardwright.codegen.operations.verify import Case

DEVICES = 8


def answered(
    script: Path,
    processes: int,
    cases: Sequence[Case | MatmulCase],
    folder: Path,
    devices: int = DEVICES,
) -> list[list[str]]:
    """What every process of a script says of every case; devices are shared out evenly."""
    asked = folder / "cases.jsonl"
    asked.write_text("".join(f"{case.to_json()}\n" for case in cases))
    words = [str(processes), str(devices // processes), str(free_port())]
    logs = [folder / f"{rank}.log" for rank in range(processes)]
    started = []
    for rank, log in enumerate(logs):
        with asked.open() as lines, log.open("w") as printed:
            command = [sys.executable, str(script), str(rank), *words]
            run = subprocess.Popen(
                command, stdin=lines, stdout=subprocess.PIPE, stderr=printed, text=True
            )
            started.append(run)
    try:
        answers = [run.communicate(timeout=500)[0].splitlines() for run in started]
    finally:
        for run in started:
            run.kill()
    said = "\n".join(log.read_text()[-2000:] for log in logs)
    assert [run.returncode for run in started] == [0] * processes, said
    return answers


def free_port() -> int:
    """A port that nobody listens on, below those that Linux gives to whoever asks for any, so that
    it does not go to one of these before it is listened on."""
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("localhost", port))
            return port
