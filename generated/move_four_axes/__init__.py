"""One reshard: README.md describes it, plan.json has its plan."""

import pathlib

if "." not in __name__:
    raise ImportError(f"import FOLDER.{__name__}, not {__name__}: the module is part of a package")
if not pathlib.Path(__file__).parent.with_name("_support").is_dir():
    raise ImportError(f"{__name__} needs the folder _support: copy it, or emit with --single-file")


def __getattr__(name):
    """Say how to emit the module of another backend."""
    from importlib.util import find_spec

    if name in ["jax_xla"] and find_spec(f"{__name__}.{name}") is None:
        raise ImportError(f'{__name__} has no module {name}: emit it with "{name}" among backends')
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
