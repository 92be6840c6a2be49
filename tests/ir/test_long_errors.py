"""Errors whose lists grow with what a user has: tensors, devices."""

from __future__ import annotations

from types import SimpleNamespace

from strategies import message

from shardwright.codegen.spec.interop import _device
from shardwright.ir.errors import InputError


def test_a_list_of_devices() -> None:
    """Of a pod, in which one id is not there."""
    pod = {number: SimpleNamespace(id=number) for number in range(8960)}
    said = message(lambda: _device(pod, 9000))
    assert said.endswith("…")
    assert len(said) < 1200


def test_what_is_expected_is_short() -> None:
    assert str(InputError("a rule", expected="x" * 1000)).endswith("x")
    assert str(InputError("a rule", expected="x" * 1001)) == f"a rule\nexpected: {'x' * 999}…"
