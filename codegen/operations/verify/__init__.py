"""Run emitted modules and compare them with the oracle, on this machine, without an accelerator."""

from shardwright.codegen.checks.case import Case
from shardwright.codegen.checks.report import Progress, Report, Verdict
from shardwright.codegen.operations.verify.pool import run_batch

__all__ = ["Case", "Progress", "Report", "Verdict", "run_batch"]
