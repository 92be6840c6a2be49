"""Linear algebra on each matrix of a batch, Fourier transforms, and approximate top-k."""

from __future__ import annotations

from collections.abc import Callable

from shardwright.codegen.ops.literals import integers
from shardwright.codegen.ops.text import Expression, OpText

_WORDS = {
    "eig": ("compute_left_eigenvectors", "compute_right_eigenvectors"),
    "eigh": ("lower", "sort_eigenvalues", "subset_by_index"),
    "ormqr": ("left", "transpose"),
    "qr": ("pivoting", "full_matrices"),
    "schur": ("compute_schur_vectors", "sort_eig_vals"),
    "svd": ("full_matrices", "compute_uv", "subset_by_index"),
    "triangular_solve": ("left_side", "lower", "transpose_a", "conjugate_a", "unit_diagonal"),
    "tridiagonal": ("lower",),
    "tridiagonal_solve": ("perturb_singular",),
    "lu_pivots_to_permutation": ("permutation_size",),
}
"""Parameters of primitives that the functions of `lax.linalg` accept under the same names."""

_CHOICES = {
    "eig": ("implementation", "implementation", "EigImplementation"),
    "eigh": ("algorithm", "implementation", "EighImplementation"),
    "svd": ("algorithm", "algorithm", "SvdAlgorithm"),
}
"""For each op, the parameter that selects an algorithm, the argument of the function for it, and
the enum of its values."""


def _worded(text: OpText) -> list[str]:
    kind = text.op.kind
    found = []
    for name in _WORDS.get(kind, ()):
        value = text.has(name)
        if value is not None:  # skip parameters that are unset, or unknown to this version of jax
            found.append(f"{name}={integers(value) if isinstance(value, tuple) else value}")
    if kind in _CHOICES:
        name, argument, names = _CHOICES[kind]
        if text.has(name) is not None:
            found.append(f"{argument}=lax.linalg.{names}.{text.has(name)}")
    return found


def _of_matrices(function: str, *more: str) -> Callable[[OpText], Expression]:
    def called(text: OpText) -> Expression:
        return f"lax.linalg.{function}", [*text.given, *_worded(text), *more]

    return called


def _svd(text: OpText) -> Expression:
    """Return a singular value decomposition with results in the order of the primitive: singular
    values first."""
    given = [*text.given, *_worded(text)]
    if not text.has("compute_uv"):
        return "lax.linalg.svd", given
    return f"(lambda u, s, v: (s, u, v))(*lax.linalg.svd({', '.join(given)}))"


def _eig(text: OpText) -> Expression:
    """Return eigenvalues, and eigenvectors if requested, as the list that `lax.linalg.eig`
    returns."""
    called = f"lax.linalg.eig({', '.join([*text.given, *_worded(text)])})"
    return f"{called}[0]" if len(text.op.results) == 1 else called


def _geqrf(text: OpText) -> Expression:
    """Return the factors for householder_product. `jnp.linalg.qr` returns the first one transposed,
    so transpose it back."""
    raw = f'jnp.linalg.qr({text.given[0]}, mode="raw")'
    return f"(lambda turned, scales: (turned.mT, scales))(*{raw})"


def _fft(text: OpText) -> Expression:
    return "lax.fft", [
        *text.given,
        f'"{text.has("fft_type")}"',
        integers(text.op.param("fft_lengths")),
    ]


def _approx_top_k(text: OpText) -> Expression:
    names = ("reduction_dimension", "recall_target", "reduction_input_size_override")
    words = [f"{name}={text.has(name)}" for name in (*names, "aggregate_to_topk")]
    which = "max" if text.has("is_max_k") else "min"
    return f"lax.approx_{which}_k", [*text.given, str(text.has("k")), *words]


MATRIX_OPS: dict[str, Callable[[OpText], Expression]] = {
    **{
        name: _of_matrices(name)
        for name in (
            *("hessenberg", "householder_product", "lu", "lu_pivots_to_permutation"),
            *("ormqr", "qr", "schur", "triangular_solve", "tridiagonal", "tridiagonal_solve"),
        )
    },
    "cholesky": _of_matrices("cholesky", "symmetrize_input=False"),
    "eigh": _of_matrices("eigh", "symmetrize_input=False"),
    "eig": _eig,
    "geqrf": _geqrf,
    "svd": _svd,
    "fft": _fft,
    "approx_top_k": _approx_top_k,
}
