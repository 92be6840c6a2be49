"""Emitted Triton modules, compiled, on one GPU: values, bandwidth, matmuls, processes, sanitizer.

`make gpu-check`, or on a machine with only torch, triton and lark, in the root of a checkout:

    PYTHONPATH=.typing:FOLDER_OF_LARK python3 -m bench.gpu_check

`bench/gpu_check.md` keeps the results. Parts run one after another, in processes of their own with
time limits of 295 s in all. After each part, `gpu_check.json` and `gpu_check.md` are written to
$OUT or `build/gpu_check`. Variables:

    GPU_CHECK_DRY=1      the same on the CPU, in Triton's interpreter, with small tensors
    GPU_CHECK_PARTS      some parts, such as `values,copies`
    GPU_CHECK_NAMES      only cases whose names begin so, such as `transpose,random_1`
    GPU_CHECK_RANDOM     how many random reshards
    GPU_CHECK_WORKERS    how many processes check values

`python -m bench.gpu_check --table FILE.json` prints the table of earlier results.
"""
