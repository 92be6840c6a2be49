"""The page of results: the columns and the summary of each part."""

from __future__ import annotations

from collections.abc import Sequence

from bench.parts.attempt import Row
from bench.parts.table import Page, Section

BIG = 32
"""The smallest result, in MiB, for which a copy takes much longer than its launches."""


def _range(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.2f}" if low == high else f"{low:.2f} to {high:.2f}"


def values_summary(rows: Sequence[Row]) -> str:
    checks = sum("self-check" in row["name"] for row in rows)
    said = (
        "Elements of bundles, random reshards and groups are compared bit by bit; results hold "
        "other bytes before each call."
    )
    return said + f" {checks} cases are self-checks of modules." * bool(checks)


def copies_summary(rows: Sequence[Row]) -> str:
    """Summarize the rates of reshards and sums of large tensors, compared with torch's copy."""
    large = [row for row in rows if row.get("written_MiB", 0) >= BIG and _by_all(row)]
    sums = [row["of_copy"] for row in large if row["read_MiB"] > row["written_MiB"]]
    moves = [row["of_copy"] for row in large if row["read_MiB"] <= row["written_MiB"]]
    said = [
        f"{kind} of {BIG} MiB or more run at {_range(ratios)} of the rate of torch's copy of as "
        "many bytes."
        for kind, ratios in (("Reshards", moves), ("Sums", sums))
        if ratios
    ]
    return " ".join(said)


def _by_all(row: Row) -> bool:
    return "of_copy" in row and "programs=" not in row["name"]


def gemm_summary(rows: Sequence[Row]) -> str:
    """Summarize the rates of matmuls, compared with torch's."""
    ratios = [row["of_torch"] for row in rows if row["name"].startswith("alone")]
    said = "Matmuls of one device run at {} of the rate of `torch.matmul`."
    return said.format(_range(ratios)) if ratios else ""


def sanitize_summary(rows: Sequence[Row]) -> str:
    """Summarize the findings of compute-sanitizer. Return "" unless the rows show that it ran."""
    planted = any("planted" in row["name"] for row in rows)
    return "compute-sanitizer finds a planted fault, and none in modules." * planted


COPIES = """\
All shards are on one GPU. `read`, `written`: MiB that kernels read and write; `distinct`: MiB read,
each byte counted once, because the L2 cache may serve repeated reads. GB/s count bytes read and
written; `copy` is torch's copy of as many bytes. `of copy`: our rate over the rate of one such
copy; `of copies`: over the rate of one copy for each device, because we launch one kernel for each.
`called`: a call without a CUDA graph; `host`: the host's time for each launch. With `programs`, a
kernel has only that many thread blocks, and leaves the other multiprocessors to other work."""

GEMM = """\
bfloat16. `alone` is a matmul of one device. Others have all ranks on one GPU, kernel after kernel:
microseconds of each kernel of one device, and `ours` is the kernel that multiplies. `pull` copies
operands with 16 programs: GB/s read and written. Errors are relative."""

RANKS = """\
Four processes share the GPU, over gloo. They take turns, so only the host's time for a call is
meaningful. `grown`: the MiB that calls after the second one left allocated."""

PAGE = Page(
    "Triton modules on a GPU",
    "What `make gpu-check` found; `bench/gpu_check/` says how.",
    (
        Section("values", summary=values_summary),
        Section(
            "copies",
            COPIES,
            {
                "devices": "devices",
                "read_MiB": "read",
                "distinct_MiB": "distinct",
                "written_MiB": "written",
                "ours_us": "us",
                "ours_GBs": "GB/s",
                "copy_GBs": "copy GB/s",
                "of_copy": "of copy",
                "of_copies": "of copies",
                "called_us": "called us",
                "host_us": "host us",
            },
            copies_summary,
        ),
        Section(
            "gemm",
            GEMM,
            {
                "worst_error": "worst error",
                "ours_TFLOPs": "TFLOP/s",
                "torch_TFLOPs": "torch TFLOP/s",
                "of_torch": "of torch",
                "host_us": "host us",
                **{f"{k}_us": k for k in ("offer", "announce", "pull", "multiply", "add")},
                "pull_GBs": "pull GB/s",
            },
            gemm_summary,
        ),
        Section(
            "ranks",
            RANKS,
            {"host_us": "host us", "grown_MiB": "grown MiB", "worst_error": "worst error"},
        ),
        Section(
            "sanitize",
            summary=sanitize_summary,
        ),
    ),
)
