"""The arguments of contractions that state a precision."""

from __future__ import annotations

from shardwright.codegen.ops.literals import dtype_text
from shardwright.codegen.ops.text import OpText

PRECISIONS = ("DEFAULT", "HIGH", "HIGHEST")


def precision(text: OpText) -> list[str]:
    """Return the argument for the precision of a contraction, or none for the default."""
    given = text.has("precision")
    if isinstance(given, tuple) and given and given[0] == given[-1]:
        given = given[0]
    if given in (None, "DEFAULT", ()):
        return []
    if isinstance(given, tuple):
        return [f"precision=({', '.join(map(_quoted, given))})"]
    return [f"precision={_quoted(given)}"]


def _quoted(precision: object) -> str:
    name = str(precision)
    return f'"{name.lower() if name in PRECISIONS else name}"'


def preferred(text: OpText, always: bool = False) -> list[str]:
    """Return the argument for the dtype of a contraction's result, or none if it is the dtype of
    the first operand, unless `always` is set."""
    if text.dtype == text.dtypes[0] and not always:
        return []
    return [f"preferred_element_type={dtype_text(text.dtype)}"]
