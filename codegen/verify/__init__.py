"""Run emitted modules against the oracle, here, without an accelerator."""

from shardwright.codegen.verify.case import Case
from shardwright.codegen.verify.pool import run_batch
from shardwright.codegen.verify.report import Report, Verdict

__all__ = ["Case", "Report", "Verdict", "run_batch"]
