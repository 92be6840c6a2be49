"""Runs programs of public libraries: prints which modules have one device's values.

python tests/peers/program_process.py as_shardy|cheapest|alone [name or prefix ...]
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(1, str(Path(__file__).parents[1]))

from cpu_devices import flags

os.environ["XLA_FLAGS"] = flags(8)
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["EQX_ON_ERROR"] = "off"  # its checks are closures that run on the host
os.environ["USE_TORCH"] = os.environ["USE_TF"] = "0"  # of transformers only the flax models

import jax
import jax.numpy as jnp
import models
import numpy as np
import program_cases
import programs_hf
import programs_layers
import programs_linen
import programs_optax
import programs_solvers

import shardwright as sw
from shardwright.codegen.checks.load import load
from shardwright.codegen.operations.verify import program_values

MESH = sw.Mesh({"d": 4, "t": 2})
FILES = (programs_linen, programs_optax, programs_layers, programs_solvers, programs_hf)


def given(case: program_cases.Case) -> Any:
    """The arguments: arrays as they are, types filled with random numbers."""
    made = program_values.arguments(jax.eval_shape(lambda *x: x, *_avals(case)))
    held = jax.tree.map(lambda x: isinstance(x, jax.ShapeDtypeStruct), case.args)
    return jax.tree.map(lambda is_type, a, b: b if is_type else a, held, case.args, made)


def _avals(case: program_cases.Case) -> Any:
    return jax.tree.map(
        lambda x: x if isinstance(x, jax.ShapeDtypeStruct) else jax.typeof(jnp.asarray(x)),
        case.args,
    )


def shardings(case: program_cases.Case, avals: Any) -> Any:
    """Rows of the last argument over d; columns of weights over t, where they can be halved."""

    def of_weight(x: Any) -> Any:
        if not case.weights or len(x.shape) < 2 or x.shape[-1] % 2:
            return None
        return f'[{"{}, " * (len(x.shape) - 1)}{{"t"}}]'

    rows = f'[{{"d"}}{", {}" * (len(avals[-1].shape) - 1)}]'
    first = [jax.tree.map(of_weight, each) for each in avals[:-1][:1]]
    return (*first, *(None for _ in avals[1:-1]), rows)


def wrong(case: program_cases.Case, mode: str, folder: str) -> str:
    """What is wrong with the module of a program, the empty string if nothing is."""
    values = given(case)
    one = jax.jit(case.fn)(*values)
    for number, leaf in enumerate(jax.tree.leaves(one)):
        if jnp.issubdtype(leaf.dtype, jnp.floating) and not jnp.isfinite(leaf).all():
            return f"no reference: result {number} is not finite on one device"
    if mode == "alone":
        return ""
    avals = jax.tree.map(jax.typeof, values)
    made = sw.partition(case.fn, *avals, mesh=MESH, in_shardings=shardings(case, avals), mode=mode)
    sw.emit(made).write(Path(folder) / "planned")
    module = load(Path(folder) / "planned" / "jax_spmd.py")
    own = module.program.__code__.co_varnames
    options = {"template": jax.eval_shape(case.fn, *avals)} if "template" in own else {}
    run = module.program(models.jax_mesh(**MESH.sizes), **options)
    return difference(one, run(*values), case.off)


def difference(one: Any, ours: Any, off: float) -> str:
    """How results differ, the empty string if not. A gradient that is zero but for rounding may
    differ by that."""
    if jax.tree.structure(one) != jax.tree.structure(ours):
        return "a different tree of results"
    for number, (a, b) in enumerate(zip(*map(jax.tree.leaves, (one, ours)), strict=True)):
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = map(jax.random.key_data, (a, b))
        a, b = (np.asarray(x, "float32" if x.dtype == "bfloat16" else None) for x in (a, b))
        bound = off * max(1e-2, float(np.max(np.abs(a), initial=0)))
        if a.dtype != b.dtype or not np.allclose(a, b, rtol=10 * off, atol=bound):
            return f"result {number} is off by {np.max(np.abs(a - b))} of {np.max(np.abs(a))}"
    return ""


def main() -> None:
    warnings.simplefilter("ignore")
    mode, *names = sys.argv[1:]
    for name, make in program_cases.PROGRAMS.items():
        if names and not any(name.startswith(each) for each in names):
            continue
        started = time.process_time()
        try:
            with tempfile.TemporaryDirectory() as folder:
                said = wrong(make(), mode, folder)
            kind = "wrong" if said else "right"
        except ModuleNotFoundError as error:
            kind, said = "not installed", str(error)
        except sw.InputError as error:
            kind, said = "refused", " | ".join(str(error).splitlines())
        except Exception as error:  # whatever is raised is a fault
            kind, said = "wrong", f"{type(error).__name__}: {' | '.join(str(error).splitlines())}"
        seconds = time.process_time() - started
        print(f"{name}\t{mode}\t{kind}\t{seconds:.1f}\t{said[:600]}", flush=True)


if __name__ == "__main__":
    main()
