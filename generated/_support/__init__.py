"""What the modules beside this folder have in common: one text for all, by `shardwright emit`.

`shardwright check` and `shardwright verify` compare the files here with those that were emitted.
"""

# Of the files that the modules of a backend use.
VERSIONS = {
    "jax_xla": "f6ea363f2f3c206c",
    "pallas_tpu": "9ad52f4e06e64250",
    "triton_gpu": "748a5e23e4f4d78d",
}


def require(backend, version, module):
    """Raise ImportError for a module that was emitted with other files than those here."""
    found = VERSIONS.get(backend, "none")
    if found != version:
        raise ImportError(
            f"{module} was emitted with version {version} of the support modules of {backend}, "
            f"beside it is {found}: emit it again"
        )
