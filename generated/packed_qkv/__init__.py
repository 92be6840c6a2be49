"""One relayout: README.md says what it moves, plan.json lists every transfer."""


def __getattr__(name):
    """Say how to emit the module of another backend."""
    from importlib.util import find_spec

    if name in ["pallas_tpu"] and find_spec(f"{__name__}.{name}") is None:
        raise ImportError(f'{__name__} has no module {name}: emit it with "{name}" among backends')
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
