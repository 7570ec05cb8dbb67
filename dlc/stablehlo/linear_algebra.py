"""Matrix factorizations: StableHLO's own ops, and the LAPACK functions that JAX calls on a CPU.

LAPACK options are characters, passed as integers: `uplo = 76` is L. `info` is 0 on success.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc.errors import UnsupportedError
from dlc.frontend.complex_numbers import Complex, is_complex
from dlc.numpy import decompositions, linalg
from dlc.numpy.apply import convert
from dlc.numpy.decompositions import lu_factors, packed_qr
from dlc.stablehlo.node import Converter, StableHloNode, StableHloValue


def _lapack_option(node: StableHloNode, name: str) -> str:
    """Return a LAPACK option as a character."""
    settings: Mapping[str, int] = node.get("mhlo.backend_config")
    return chr(settings[name])


def _zero_info(x: Any) -> Any:
    return dnp.zeros(x.shape[:-2], np.int32)


def _zeros(node: StableHloNode, shape: Sequence[int], x: Any) -> Any:
    """Return zeros for a result that the call does not request, complex if `x` is."""
    zeros = node.trace.value(np.zeros(shape, decompositions.real_dtype(x)))
    return Complex(zeros, zeros) if is_complex(x) else zeros


def _values(node: StableHloNode, *arrays: Any) -> Sequence[StableHloValue]:
    return [node.value(array) for array in arrays]


def _cholesky(node: StableHloNode) -> Sequence[StableHloValue]:
    """Return the Cholesky factor, and `info`: 1 if the factor contains NaN."""
    (x,) = node.arrays
    factor = linalg.cholesky(x, upper=_lapack_option(node, "uplo") == "U")
    failed = dnp.any(dnp.isnan(dnp.real(dnp.linalg.diagonal(factor))), -1)
    return _values(node, factor, convert(failed, np.int32))


def cholesky(node: StableHloNode) -> StableHloValue:
    (x,) = node.arrays
    return node.value(linalg.cholesky(x, upper=not node.get("lower", default=False)))


def _solve(a: Any, b: Any, *, left: bool, lower: bool, transposed: bool, conjugated: bool, unit: bool) -> Any:
    """Solve a·x = b, or x·a = b if not `left`; with aᵀ if `transposed`, and the conjugate of a if `conjugated`."""
    if transposed == left:
        a, lower = dnp.matrix_transpose(a), not lower
    if conjugated:
        a = dnp.conj(a)
    if left:
        return decompositions.triangular_solve(a, b, lower=lower, unit=unit)
    return dnp.matrix_transpose(decompositions.triangular_solve(a, dnp.matrix_transpose(b), lower=lower, unit=unit))


def _triangular_solve(node: StableHloNode) -> StableHloValue:
    a, b = node.arrays
    left, lower, transposed, conjugated, unit = (
        _lapack_option(node, name) in letters
        for name, letters in (("side", "L"), ("uplo", "L"), ("trans_x", "TC"), ("trans_x", "C"), ("diag", "U"))
    )
    return node.value(_solve(a, b, left=left, lower=lower, transposed=transposed, conjugated=conjugated, unit=unit))


def triangular_solve(node: StableHloNode) -> StableHloValue:
    a, b = node.arrays
    left, lower, unit = (bool(node.get(name, default=False)) for name in ("left_side", "lower", "unit_diagonal"))
    transpose = node.keyword(("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"), "transpose_a")
    transposed, conjugated = transpose != "NO_TRANSPOSE", transpose == "ADJOINT"
    # There are kernels for f32 and f64.
    dtype = np.promote_types(a.dtype, np.float32)
    x = _solve(
        dnp.astype(a, dtype),
        dnp.astype(b, dtype),
        left=left,
        lower=lower,
        transposed=transposed,
        conjugated=conjugated,
        unit=unit,
    )
    return node.value(dnp.astype(x, b.dtype))


def _lu(node: StableHloNode) -> Sequence[StableHloValue]:
    (x,) = node.arrays
    factors, _, pivots = lu_factors(x)
    return _values(node, factors, convert(dnp.add(pivots, 1), np.int32), _zero_info(x))


def _qr(node: StableHloNode) -> Sequence[StableHloValue]:
    return _values(node, *packed_qr(node.arrays[0]))


def _orthogonal_columns(node: StableHloNode) -> StableHloValue:
    """Return the first columns of Q from Householder vectors and scales."""
    x, scales = node.arrays
    rows, count = x.shape[-2:]
    num_vectors = scales.shape[-1]
    strict_lower = dnp.tril(x[..., :num_vectors], k=-1)
    vectors = dnp.add(strict_lower, np.eye(rows, num_vectors, dtype=decompositions.real_dtype(x)))
    q = decompositions.orthogonal_columns(dnp.matrix_transpose(vectors), scales, count)
    return node.value(dnp.matrix_transpose(q))


def _eigh(node: StableHloNode) -> Sequence[StableHloValue]:
    (x,) = node.arrays
    triangle = _lapack_option(node, "uplo")
    if _lapack_option(node, "mode") == "N":
        return _values(node, x, linalg.eigvalsh(x, triangle), _zero_info(x))
    values, vectors = linalg.eigh(x, triangle)
    return _values(node, vectors, values, _zero_info(x))


def _eig(node: StableHloNode) -> Sequence[StableHloValue]:
    """Eigenvectors that are not requested are zeros."""
    (x,) = node.arrays
    if _lapack_option(node, "compute_left") == "V":
        raise UnsupportedError(f"{node.where}: left eigenvectors are not supported; use those of the transposed matrix")
    zeros = node.trace.value(np.zeros(x.shape, decompositions.real_dtype(x)))
    unused = Complex(zeros, zeros)
    if _lapack_option(node, "compute_right") == "N":
        values, vectors = linalg.eigvals(x), unused
    else:
        values, vectors = linalg.eig(x)
    failed = convert(dnp.any(dnp.isnan(values.real), -1), np.int32)
    eigenvalues = (values,) if is_complex(x) else (values.real, values.imag)
    return _values(node, *eigenvalues, unused, vectors, failed)


def _svd(node: StableHloNode) -> Sequence[StableHloValue]:
    """Singular vectors that are not requested are zeros."""
    (x,) = node.arrays
    mode = _lapack_option(node, "mode")
    if mode == "N":
        u, vh = (_zeros(node, type.shape, x) for type in node.op.types[2:4])
        return _values(node, x, linalg.svdvals(x), u, vh, _zero_info(x))
    u, s, vh = linalg.svd(x, full_matrices=mode == "A")
    return _values(node, x, s, u, vh, _zero_info(x))


# LAPACK names without the prefix for the element type.
_LAPACK: dict[str, Converter] = {
    "potrf": _cholesky, "trsm": _triangular_solve, "getrf": _lu, "geqrf": _qr, "gesdd": _svd,
}  # fmt: skip
_REAL_LAPACK: dict[str, Converter] = {**_LAPACK, "orgqr": _orthogonal_columns, "syevd": _eigh}
_COMPLEX_LAPACK: dict[str, Converter] = {**_LAPACK, "ungqr": _orthogonal_columns, "heevd": _eigh}


def _lapack_operators(rules: Mapping[str, Converter], prefixes: str) -> dict[str, Converter]:
    return {f"stablehlo.custom_call @lapack_{prefix}{name}_ffi": rule for name, rule in rules.items() for prefix in prefixes}


_COMMON: dict[str, Converter] = {"stablehlo.cholesky": cholesky, "stablehlo.triangular_solve": triangular_solve}
OPERATORS: dict[str, Converter] = {**_lapack_operators(_REAL_LAPACK, "sd"), **_COMMON}
# Ops with complex operands or results.
COMPLEX_OPERATORS: dict[str, Converter] = {
    **_lapack_operators(_COMPLEX_LAPACK, "cz"),
    **_lapack_operators({"geev": _eig}, "sdcz"),
    **_COMMON,
}
