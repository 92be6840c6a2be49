"""What the modules beside this folder have in common: one text for all, by `shardwright emit`.

`shardwright check` and `shardwright verify` compare the files here with those that were emitted.
"""

from runpy import run_path

# Of the files that the modules of a backend use.
VERSIONS = {
    "jax_xla": "1ddea858e8668f1d",
    "pallas_tpu": "07686d244a4399da",
    "triton_gpu": "cbd4f63ab500cff1",
}


# What functions that a module may lack are emitted by.
DOORS = {
    "reshard_done": "start",
    "reshard_dtensor": "dtensor",
    "reshard_start": "start",
    "symmetric_result": "symmetric",
    "symmetric_source": "symmetric",
}


def absent(module):
    """Return the `__getattr__` of a module, which says by which feature it has another function."""

    def missing(name):
        said = f"module {module!r} has no attribute {name!r}"
        if name in DOORS:
            feature = DOORS[name]
            said = f"{name} needs the feature {feature}: emit {module} with --feature {feature}"
        raise AttributeError(said)

    return missing


def require(backend, version, module):
    """Raise ImportError for a module that was emitted with other files than those here."""
    # This package may have been imported before the first module of the backend was written here.
    found = VERSIONS.get(backend) or run_path(__file__)["VERSIONS"].get(backend, "none")
    if found != version:
        raise ImportError(
            f"{module} was emitted with version {version} of the support modules of {backend}, "
            f"beside it is {found}: emit it again"
        )
