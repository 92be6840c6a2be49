"""A fuzz of what is emitted: cases made from ids, modules run, results judged by a reference.

`case.py` says what a case is and which features it has, `generate.py` makes one from its id,
`reference.py` computes what must come out from the texts of both shardings alone. `torch_run.py`
and `jax_run.py` run a module and judge it, in worker processes that `pool.py` starts.

    python -m tests.fuzz --count 3000         run many; failures print their ids
    python -m tests.fuzz --id 1234            run one again, and print what it is
"""
