"""Functions that nothing uses are left out of a module; the rest of its text stays."""

from __future__ import annotations

from shardwright.codegen.emit.pruned import pruned

MODULE = '''"""Doc."""

__all__ = ["public"]

NUMBER = len("x")


def _used():
    return NUMBER


def _unused():
    """Uses what is used by nothing else."""
    return _inner()


def public():
    return _used()


@decorated(
    1,
)
def _inner():
    return _unused()


def kept():
    return 1
'''


def test_functions_that_nothing_leads_to_are_left_out() -> None:
    text = pruned(MODULE, keep=("kept",))
    assert text == MODULE.replace(
        MODULE[MODULE.index("def _unused") : MODULE.index("def public")], ""
    ).replace(MODULE[MODULE.index("@decorated") : MODULE.index("def kept")], "")


def test_a_module_that_uses_all_stays() -> None:
    text = pruned(MODULE, keep=("kept", "_unused"))
    assert text == MODULE
