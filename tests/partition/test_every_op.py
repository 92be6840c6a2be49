"""Every op of the tables of modules, in every arity, on two devices."""

from __future__ import annotations

from typing import Any

import jax
import pytest
from jax.experimental import io_callback
from programs import findings
from sweeps import kept

import shardwright as sw
from shardwright.codegen.ops.table import KINDS

MODES = ("as_shardy", "cheapest")


def run(*words: str) -> Any:
    return findings("op_process.py", *words)


def test_every_op_can_be_lowered_as_it_is_emitted() -> None:
    """A kind that a table gets needs a case of its own in `op_cases`."""
    found = run("shapes", "as_shardy")
    assert found["wrong"] == {}
    every = {name for name, kind in KINDS.items() if kind.text}
    assert every - set(found["kinds"]) == set()


@pytest.mark.slow
def test_ops_that_were_wrong_have_one_devices_values() -> None:
    words = ("betainc", "barrier of 2", "along an axis of vmap", "bits of keys", "(4, 9) to (6, 6)")
    assert run("values", "as_shardy", *words)["wrong"] == {}


def test_branches_that_reduce_otherwise_have_one_devices_values() -> None:
    """Terms of a maximum become terms of a sum; tensors without elements are not sent."""
    words = ("branches of max and sum", "branches of first", "of nothing", "of a top_k")
    assert run("values", "cheapest", *words)["wrong"] == {}


def test_callbacks_that_give_numbers_are_refused() -> None:
    """The type of what they give is a parameter, and no number."""
    given = jax.ShapeDtypeStruct((), "float32")
    called = lambda x: io_callback(float, given, x)  # noqa: E731
    program = sw.partition(called, given, mesh=sw.Mesh({"d": 2}), in_shardings="[]")
    with pytest.raises(sw.InputError) as caught:
        _ = sw.emit(program).module
    assert "got: io_callback, " in str(caught.value)


@pytest.mark.parametrize("mode", kept(MODES, "cheapest"))
def test_every_op_has_one_devices_values(mode: str) -> None:
    assert run("values", mode)["wrong"] == {}


@pytest.mark.slow
def test_some_ops_of_uneven_extents_and_64_bits_have_one_devices_values() -> None:
    for what, part in (("uneven", "3/12"), ("wide", "5/12"), ("wide_uneven", "7/12")):
        assert run(what, "cheapest", part)["wrong"] == {}, what


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("what", ["uneven", "wide", "wide_uneven"])
def test_every_op_of_uneven_extents_and_64_bits_has_one_devices_values(
    what: str, mode: str
) -> None:
    assert run(what, mode)["wrong"] == {}
