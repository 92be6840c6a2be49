"""What the modules beside this folder have in common: one text for all, by `shardwright emit`.

`shardwright check` and `shardwright verify` compare the files here with those that were emitted.
"""

from runpy import run_path

# Of the files that the modules of a backend use.
VERSIONS = {
    "jax_xla": "905b7d4e093be605",
    "pallas_tpu": "03ef38cfe499f4d3",
    "triton_gpu": "dfbc435a844b4504",
}


def require(backend, version, module):
    """Raise ImportError for a module that was emitted with other files than those here."""
    # This package may have been imported before the first module of the backend was written here.
    found = VERSIONS.get(backend) or run_path(__file__)["VERSIONS"].get(backend, "none")
    if found != version:
        raise ImportError(
            f"{module} was emitted with version {version} of the support modules of {backend}, "
            f"beside it is {found}: emit it again"
        )
