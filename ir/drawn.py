"""Objects that notebooks display as a picture."""

from __future__ import annotations

from importlib import import_module


class Drawn:
    """An object that `sw.html` draws; a notebook displays the picture if it is the last value of a
    cell."""

    @property
    def pictured(self) -> Drawn:
        """The object whose picture this one has."""
        return self

    def _repr_html_(self) -> str:
        # Import on first use, because data does not depend on pictures.
        return str(import_module("shardwright").html(self))
