"""What the modules beside this folder have in common: one text for all, by `shardwright emit`.

`shardwright check` and `shardwright verify` compare the files here with those that were emitted.
"""

# Of the files that the modules of a backend use.
VERSIONS = {
    "jax_xla": "803848ef4ba218ff",
    "pallas_tpu": "9d1f686052098291",
    "triton_gpu": "b0e2cbfa57fe385e",
}


def require(backend, version, module):
    """Raise ImportError for a module that was emitted with other files than those here."""
    found = VERSIONS.get(backend, "none")
    if found != version:
        raise ImportError(
            f"{module} was emitted with version {version} of the support modules of {backend}, "
            f"beside it is {found}: emit it again"
        )
