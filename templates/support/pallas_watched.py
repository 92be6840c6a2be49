"""Kernels under the interpreter in a self-check: it prints races and semaphores left nonzero, and a
self-check must fail on them."""

import contextlib
import io
import re

import jax
from jax.experimental.pallas import tpu as pltpu


def watched(move):
    """Return the result of a function of `interpret`, run to completion; exit if the interpreter
    reports a race or a semaphore that is nonzero at the end."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        found = jax.block_until_ready(move(interpret=pltpu.InterpretParams(detect_races=True)))
    if noticed := re.search(r".*(RACE DETECTED|non-zero count).*", printed.getvalue()):
        raise SystemExit(noticed[0])
    return found
