"""Run measurements and print a table for each: `python -m bench [NAME[:COUNT] ...]`.

COUNT is the number of random cases, for measurements that have any: `tpu_compile:20` is a short
run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from bench import (
    balance,
    beside,
    bytes,
    comparison,
    direct_bundles,
    forms,
    gpu_assembly,
    gpu_copy,
    gpu_matmul,
    gpu_packing,
    gpu_staging,
    host_time,
    layouts,
    link_loads,
    links,
    matmul_bytes,
    matmul_loops,
    matmul_time,
    measure,
    model_sync,
    models,
    one_call,
    overlap_tpu,
    program_bytes,
    program_search,
    program_time,
    propagation,
    receivers,
    search,
    speed,
    sum_bytes,
    tpu_compile,
    trust,
    uneven_bytes,
    verdicts,
    xla_copies,
    xla_time,
)

TABLES: dict[str, Callable[..., None]] = {
    "speed": speed.main,
    "balance": balance.main,
    "tpu_compile": tpu_compile.main,
    "direct_bundles": direct_bundles.main,
    "forms": forms.main,
    "gpu_assembly": gpu_assembly.main,
    "gpu_copy": gpu_copy.main,
    "gpu_matmul": gpu_matmul.main,
    "gpu_packing": gpu_packing.main,
    "gpu_staging": gpu_staging.main,
    "host_time": host_time.main,
    "link_loads": link_loads.main,
    "receivers": receivers.main,
    "bytes": bytes.main,
    "comparison": comparison.main,
    "layouts": layouts.main,
    "links": links.main,
    "matmul_bytes": matmul_bytes.main,
    "matmul_loops": matmul_loops.main,
    "matmul_time": matmul_time.main,
    "measure": measure.main,
    "one_call": one_call.main,
    "overlap_tpu": overlap_tpu.main,
    "sum_bytes": sum_bytes.main,
    "program_bytes": program_bytes.main,
    "program_search": program_search.main,
    "uneven_bytes": uneven_bytes.main,
    "program_time": program_time.main,
    "models": models.main,
    "model_sync": model_sync.main,
    "search": search.main,
    "trust": trust.main,
    "verdicts": verdicts.main,
    "beside": beside.main,
    "propagation": propagation.main,
    "xla_copies": xla_copies.main,
    "xla_time": xla_time.main,
}
COUNTED = (
    "beside",
    "forms",
    "matmul_bytes",
    "matmul_time",
    "sum_bytes",
    "tpu_compile",
    "verdicts",
    "xla_copies",
    "xla_time",
)


def main(words: list[str]) -> None:
    """Print the tables named in `words`, or all tables if there are none."""
    asked = [word.partition(":") for word in words or TABLES]
    unknown = [name for name, _, _ in asked if name not in TABLES]
    if unknown:
        raise SystemExit(f"no such table: {', '.join(unknown)}; expected {', '.join(TABLES)}")
    for name, colon, count in asked:
        if colon and not (name in COUNTED and count.isdecimal()):
            known = ", ".join(COUNTED)
            raise SystemExit(f"{name}{colon}{count}: only these tables take a count: {known}")
        TABLES[name](*([int(count)] if colon else []))


main(sys.argv[1:])
