"""Linear algebra on each matrix of a batch, and Fourier transforms."""

from __future__ import annotations

from shardwright.codegen.ops.build import Builder, Shapes
from shardwright.codegen.ops.kind import MakeRule, OpKind
from shardwright.codegen.ops.literals import integers
from shardwright.codegen.ops.text import Expression, MakeText, OpText
from shardwright.ir.program import Op, Rule

_WORDS = {
    "eig": ("compute_left_eigenvectors", "compute_right_eigenvectors"),
    "eigh": ("lower", "sort_eigenvalues", "subset_by_index"),
    "ormqr": ("left", "transpose"),
    "qr": ("pivoting", "full_matrices"),
    "schur": ("compute_schur_vectors", "sort_eig_vals"),
    "svd": ("full_matrices", "compute_uv", "subset_by_index"),
    "symmetric_product": ("alpha", "beta"),
    "triangular_solve": ("left_side", "lower", "transpose_a", "conjugate_a", "unit_diagonal"),
    "tridiagonal": ("lower",),
    "tridiagonal_solve": ("perturb_singular",),
    "lu_pivots_to_permutation": ("permutation_size",),
}
"""The parameters of primitives that the functions of `lax.linalg` accept under the same names."""

_CHOICES = {
    "eig": ("implementation", "implementation", "EigImplementation"),
    "eigh": ("algorithm", "implementation", "EighImplementation"),
    "svd": ("algorithm", "algorithm", "SvdAlgorithm"),
}
"""For each op, the parameter that selects an algorithm, the function's argument for it, and the
enum of its values."""


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


def _of_matrices(function: str, *more: str) -> MakeText:
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


def _matrices_rule(trailing: int) -> MakeRule:
    """Return the function that makes the rule of linear algebra. Batch dimensions correspond in all
    tensors, and matrix dimensions must not be split. `trailing`: how many trailing dimensions of
    the first operand form a matrix; all earlier dimensions are batch dimensions."""

    def rule(op: Op, operands: Shapes, results: Shapes) -> Rule:
        build = Builder(operands, results)
        batch = len(operands[0]) - trailing
        every = (*operands, *results)
        for dim in range(batch):
            build.factor(operands[0][dim], dict.fromkeys(range(len(every)), dim))
        for place, shape in enumerate(every):
            for dim in range(batch, len(shape)):
                build.factor(shape[dim], {place: dim}, kind="need_replication")
        return build.rule()

    return rule


def _triangular_solve_rule(op: Op, operands: Shapes, results: Shapes) -> Rule:
    """Return the rule of a triangular solve, whose right-hand sides are independent."""
    build = Builder(operands, results)
    rank, is_left = len(operands[1]), bool(op.param("left_side"))
    alone = rank - 1 if is_left else rank - 2  # the dimension of right-hand sides
    for dim in range(rank - 2):
        build.factor(operands[0][dim], dict.fromkeys(range(3), dim))
    build.factor(operands[1][alone], {1: alone, 2: alone})
    for place, dims in enumerate(((rank - 2, rank - 1), *[(2 * rank - 3 - alone,)] * 2)):
        for dim in dims:
            build.factor((*operands, *results)[place][dim], {place: dim}, kind="need_replication")
    return build.rule()


def _fft_rule(op: Op, operands: Shapes, results: Shapes) -> Rule:
    """Return the rule of a Fourier transform of the last dimensions, which must not be split. If a
    dimension differs between operand and result, as for real numbers, each side has its own
    factor."""
    build = Builder(operands, results)
    source, target = operands[0], results[0]
    moved = len(source) - len(op.integers("fft_lengths"))
    for dim, extent in enumerate(source):
        kind = "need_replication" if dim >= moved else "pass"
        same = target[dim] == extent
        build.factor(extent, {0: dim, 1: dim} if same else {0: dim}, kind=kind)
        if not same:
            build.factor(target[dim], {1: dim}, kind=kind)
    return build.rule()


OF_MATRICES, OF_VECTORS = _matrices_rule(2), _matrices_rule(1)


def _algebra(name: str) -> OpKind:
    return OpKind(name, OF_MATRICES, _of_matrices(name))


KINDS = (
    OpKind("cholesky", OF_MATRICES, _of_matrices("cholesky", "symmetrize_input=False")),
    _algebra("cholesky_update"),
    OpKind("eig", OF_MATRICES, _eig),
    OpKind("eigh", OF_MATRICES, _of_matrices("eigh", "symmetrize_input=False")),
    OpKind("geqrf", OF_MATRICES, _geqrf),
    _algebra("hessenberg"),
    _algebra("householder_product"),
    _algebra("lu"),
    _algebra("ormqr"),
    _algebra("qr"),
    _algebra("schur"),
    OpKind("svd", OF_MATRICES, _svd),
    _algebra("symmetric_product"),
    _algebra("tridiagonal"),
    OpKind("lu_pivots_to_permutation", OF_VECTORS, _of_matrices("lu_pivots_to_permutation")),
    OpKind("tridiagonal_solve", OF_VECTORS, _of_matrices("tridiagonal_solve")),
    OpKind("triangular_solve", _triangular_solve_rule, _of_matrices("triangular_solve")),
    OpKind("fft", _fft_rule, _fft),
)
