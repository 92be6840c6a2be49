"""Compile emitted modules with the real compilers, on this machine, without an accelerator."""

from shardwright.codegen.checks.compiled.report import (
    CompileReport,
    GpuCode,
    Outcome,
    Progress,
    TpuCode,
    Verdict,
)

__all__ = [
    "TIME_LIMIT",
    "CompileReport",
    "GpuCode",
    "Outcome",
    "Progress",
    "TpuCode",
    "Verdict",
]

TIME_LIMIT = 600.0
"""The default time limit for compiling one program, in seconds."""
