"""What counts as a line of code, and what of a support folder a self-check loads."""

from __future__ import annotations

from pathlib import Path

from bench.trust import code_lines, loaded

SAID = '''"""A module
of two lines."""

# a comment
X = (
    1,  # and another

    2,
)


def f():
    """What it does."""
    return "text"  # of code
'''


def test_comments_docstrings_and_blanks_are_no_code() -> None:
    assert code_lines(SAID) == 6
    assert code_lines("") == 0


def test_what_a_module_does_not_import_is_not_counted(tmp_path: Path) -> None:
    """A file that it imports when it is used counts if the self-check uses it."""
    home, support = tmp_path / "g" / "a", tmp_path / "g" / "_support"
    for folder in (home, support):
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
    (tmp_path / "g" / "__init__.py").touch()
    for name, text in {"used": "A = 1\n", "later": "B = 1\nC = 2\n", "unused": "D = 1\n"}.items():
        (support / f"{name}.py").write_text(text)
    module = home / "jax_xla.py"
    module.write_text(
        "from .._support.used import A\n\n\ndef check():\n"
        "    from .._support import later, used\n\n"
        "    raise SystemExit(3)\n\n\nif __name__ == '__main__':\n    check()\n"
    )
    assert loaded(module) == {"__init__": 0, "jax_xla": 6, "later": 2, "used": 1}
