"""What an emitted program computes, beside one device; and faults to plant in it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax

import shardwright as sw
from shardwright.codegen.operations.verify import program_values

Plant = Callable[[str], str]


def module_of(program: sw.Partitioned, plant: Plant | None = None) -> dict[str, Any]:
    """The names of the module of a program, with a fault if one is to be planted."""
    text = sw.emit(program).module
    untidy = [line for line in text.splitlines() if len(line) > 100 or line != line.rstrip()]
    assert not untidy, untidy[0]
    if plant is not None:
        planted = plant(text)
        assert planted != text
        text = planted
    names: dict[str, Any] = {"__name__": "emitted"}
    exec(compile(text, "emitted", "exec"), names)
    return names


def fault(fn: Any, avals: Any, program: Any, mesh: Any, plant: Plant | None = None) -> str:
    """What is wrong with what the module of a program computes; the empty string if nothing is."""

    def run(*given: Any) -> Any:
        module = module_of(program, plant)
        has_others = "template" in inspect.signature(module["program"]).parameters
        options = {"template": jax.eval_shape(fn, *avals)} if has_others else {}
        return _unpadded(module, module["program"](mesh, **options))(*given)

    return program_values.fault(fn, avals, run)


def _unpadded(module: dict[str, Any], run: Any) -> Any:
    """A program on arrays without padding. That of its arguments is poisoned."""
    return program_values.unpadded(SimpleNamespace(**module), run) if "pad" in module else run


def fault_of_gradient(
    gradient_of: Callable[[Any], Any],
    fn: Any,
    avals: Any,
    program: Any,
    mesh: Any,
    plant: Plant | None = None,
) -> str:
    """What is wrong with the gradient that jax makes of the module of a function."""
    module = module_of(program, plant)
    run = _unpadded(module, module["program"](mesh))
    return program_values.fault(jax.jit(gradient_of(fn)), avals, gradient_of(run))


def received(avals: Any, program: Any, mesh: Any) -> int:
    """The bytes that the busiest device receives by the HLO of the module, for CPUs."""
    module = module_of(program)
    if "pad" in module:
        avals = jax.eval_shape(module["pad"], *avals)
    return program_values.received(avals, module["program"](mesh), mesh.size)


def once(pattern: str, to: str) -> Plant:
    """Replace the first match of a pattern."""

    def plant(text: str) -> str:
        assert re.search(pattern, text), pattern
        return re.sub(pattern, to, text, count=1)

    return plant


def every(pattern: str, to: str) -> Plant:
    """Replace every match of a pattern."""

    def plant(text: str) -> str:
        assert re.search(pattern, text, re.MULTILINE), pattern
        return re.sub(pattern, to, text, flags=re.MULTILINE)

    return plant


def caught(fn: Any, avals: Any, program: Any, mesh: Any, plant: Plant) -> str:
    """Which checks see a fault: JAX's own of what varies over devices; where that is off, the
    values and the bytes."""

    def unchecked(text: str) -> str:
        return plant(text).replace("check_vma=True", "check_vma=False")

    seen = []
    if "Error" in fault(fn, avals, program, mesh, plant):
        seen.append("jax")
    if "off by" in fault(fn, avals, program, mesh, unchecked):
        seen.append("values")
    lowered = module_of(program, unchecked)["program"](mesh)
    if program_values.received(avals, lowered, mesh.size) != program.bytes_received:
        seen.append("bytes")
    return " ".join(seen)


FAULTS: dict[str, Plant] = {
    "a dropped sum": once(r'= lax\.psum\((\w+), "t"\)', r"= \1"),
    "a sum too many": once(r"= (\w+) - y", r'= lax.psum(\1 - y, "t")'),
    "a gather along the wrong axis": once(
        r'lax\.all_gather\(p_w1, "d", (.*?)\)', r'jnp.tile(lax.all_gather(p_w1, "t", \1), (2, 1))'
    ),
    "a gather of the wrong dimension": once(
        r'(all_gather\(p_w1, "d"), axis=0(.*\n.*=) x @ (\w+)',
        r"\1, axis=1\2 x @ \3.reshape(-1, 32)",
    ),
    "a scatter of the wrong dimension": once(
        r"scatter_dimension=1, tiled=True\)", r"scatter_dimension=0, tiled=True).reshape(-1, 8)"
    ),
    "a sum after what is not linear": once(
        r"(\w+_reduced) = lax\.psum\((\w+), \"t\"\)(.*\n(?:.*\n)*?.*= )(\w+) \*\* 2",
        r'\1 = \2\3lax.psum(\4 ** 2, "t")',
    ),
}
