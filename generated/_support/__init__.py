"""What the modules beside this folder have in common: one text for all, by `shardwright emit`.

`shardwright check` and `shardwright verify` compare the files here with those that were emitted.
"""

# Of the files that the modules of a backend use.
VERSIONS = {
    "jax_xla": "8e6215892f177c16",
    "pallas_tpu": "678646057cf9831a",
    "triton_gpu": "f462e05f5f59eb5c",
}


def require(backend, version, module):
    """Raise ImportError for a module that was emitted with other files than those here."""
    found = VERSIONS.get(backend, "none")
    if found != version:
        raise ImportError(
            f"{module} was emitted with version {version} of the support modules of {backend}, "
            f"beside it is {found}: emit it again"
        )
