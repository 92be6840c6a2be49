"""All kernel forms: those of the files in `kernel_forms/`, and rings."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from shardwright.codegen.backends.pallas_tpu import kernel_forms
from shardwright.codegen.backends.pallas_tpu.form import Form
from shardwright.codegen.backends.pallas_tpu.ring import RINGS


def _found() -> tuple[type[Form], ...]:
    """Return the form of every file in `kernel_forms/`, by rank."""
    names = (f"{kernel_forms.__name__}.{each.name}" for each in iter_modules(kernel_forms.__path__))
    found: list[type[Form]] = [import_module(name).FORM for name in names]
    return tuple(sorted(found, key=lambda form: form.facts.rank))


FORMS = _found()
"""The forms that can move an exchange. The first takes a reviewer the fewest lines to read."""

FACTS = {facts.name: facts for facts in (*(form.facts for form in FORMS), RINGS)}
"""The facts of every form, by the name that programs state. `timeline.py` chooses rings."""
