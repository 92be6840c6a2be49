"""The base class of objects that a notebook displays as a picture."""

from __future__ import annotations

from importlib import import_module


class Drawn:
    """An object that `sw.html` draws. A notebook shows the picture if the object is the value of
    the last line of a cell."""

    @property
    def pictured(self) -> Drawn:
        """The object to draw: this one, unless a subclass overrides the property."""
        return self

    def _repr_html_(self) -> str:
        # Imported here, because `ir` must not depend on the package that draws.
        return str(import_module("shardwright").html(self))
