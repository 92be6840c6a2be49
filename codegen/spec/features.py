"""Features: optional parts of modules beyond the functions that every bundle has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from shardwright.codegen.registry import DUTIES
from shardwright.ir.errors import InputError, one_of, unknown

FEATURES = {
    "async": "`reshard(async_op=True)` of torch tensors, which is waited for later",
    "check_exchange": "a self-check of torch tensors that are packed for an exchange too",
    "dtensor": "`reshard_dtensor`, where placements can express both shardings",
    "gradient": "derivatives: the reverse reshard, in a module beside",
    "remembered": "calls among processes whose tensors came before, launched without checks",
    "start": "`reshard_start` and `reshard_done` of Pallas modules; a program computes in between",
    "symmetric": "`symmetric_source` and `symmetric_result`: GPU memory that peers read or write",
    "vmap": "`reshard` of JAX modules under `jax.vmap`: one exchange after another",
}
"""Every feature, with a description."""

OF_MATMULS = ("gradient",)
"""The features of matmuls."""


def read_features(value: object) -> tuple[str, ...]:
    """Return sorted, distinct features from a list or a comma-separated text."""
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(each, str) for each in names):
        raise InputError(
            "features must be a list of names, or a string with commas",
            argument="features",
            got=value,
            expected='["async", "dtensor"]',
        )
    found = sorted({name.strip() for name in names})
    for name in found:
        if name not in FEATURES:
            raise unknown("no such feature", name, FEATURES, "features", one_of(FEATURES))
    return tuple(found)


def check_features(names: Iterable[str], backends: Iterable[str]) -> None:
    """Raise InputError for a feature that none of these backends offers for reshards."""
    chosen = [each for each in backends if each in DUTIES]
    known = sorted({name for each in chosen for name in DUTIES[each].features})
    for name in names:
        if chosen and name not in known:
            owners = [each for each, duties in DUTIES.items() if name in duties.features]
            raise InputError(
                f"modules of {' and '.join(chosen)} do not support this feature",
                argument="features",
                got=name,
                expected=f"{one_of(known)}; or the backend {' or '.join(owners)}",
            )


def check_matmul_features(names: Iterable[str]) -> None:
    """Raise InputError for a feature that no matmul can have."""
    for name in names:
        if name not in OF_MATMULS:
            raise InputError(
                "modules of matmuls do not support this feature",
                argument="features",
                got=name,
                expected=one_of(OF_MATMULS),
            )


def feature_lines(known: Mapping[str, Sequence[str]], features: Iterable[str]) -> tuple[str, ...]:
    """Return lines for the review page: the features that modules have, and those that they could
    have. `known`: the features that a module of each backend can have.

    >>> feature_lines({"pallas_tpu": ("gradient", "vmap"), "jax_xla": ("vmap",)}, ["gradient"])
    ('features: gradient (pallas_tpu)', '`--feature` can add vmap (pallas_tpu); vmap (jax_xla)')
    """
    asked = {*features}
    had = {name: [each for each in every if each in asked] for name, every in known.items()}
    more = {name: [each for each in every if each not in asked] for name, every in known.items()}
    pairs = (("features:", had), ("`--feature` can add", more))
    lists = (
        (start, [f"{', '.join(e)} ({n})" for n, e in own.items() if e]) for start, own in pairs
    )
    return tuple(f"{start} {'; '.join(listed)}" for start, listed in lists if listed)
