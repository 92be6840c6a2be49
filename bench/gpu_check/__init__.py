"""Compile emitted Triton modules and check them on one GPU: values, bandwidth, matmuls, processes,
sanitizer.

`make gpu-check`, or on a machine with only torch, triton and lark, in the root of a checkout:

PYTHONPATH=.typing:FOLDER_OF_LARK python3 -m bench.gpu_check

`bench/gpu_check.md` keeps the results. Parts run one after another, in separate processes, with
time limits that total 295 s. After each part, `gpu_check.json` and `gpu_check.md` are written to
$OUT or `build/gpu_check`. Variables:

    GPU_CHECK_DRY=1      the same on the CPU, in Triton's interpreter, with small tensors
    GPU_CHECK_PARTS      the parts to run, such as `values,copies`
    GPU_CHECK_NAMES      the beginnings of names of cases to run, such as `transpose,random_1`
    GPU_CHECK_RANDOM     the number of random reshards
    GPU_CHECK_WORKERS    the number of processes that check values

`python -m bench.gpu_check --table FILE.json` prints the table of earlier results.
"""
