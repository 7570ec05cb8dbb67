"""Factors of matrices: StableHLO's own ops, and the functions of LAPACK that JAX calls on a CPU.

Letters say there, as numbers, what is to be done: `uplo = 76` is L. `info` is 0 where a function has found what it looks for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc.dialects import dl
from dlc.numpy import linalg
from dlc.numpy.apply import apply, apply_all, convert
from dlc.numpy.factors import triangles
from dlc.stablehlo.node import Converter, Node, Value


def _letter(node: Node, name: str) -> str:
    """What LAPACK is told by an argument."""
    settings: Mapping[str, int] = node.get("mhlo.backend_config")
    return chr(settings[name])


def _found(x: Any) -> Any:
    return dnp.zeros(x.shape[:-2], np.int32)


def _values(node: Node, *arrays: Any) -> Sequence[Value]:
    return [node.value(array) for array in arrays]


def _root(node: Node) -> Sequence[Value]:
    """Whether there is one is seen in the numbers."""
    (x,) = node.arrays
    root = linalg.cholesky(x, upper=_letter(node, "uplo") == "U")
    failed = dnp.any(dnp.isnan(dnp.linalg.diagonal(root)), -1)
    return _values(node, root, convert(failed, np.int32))


def cholesky(node: Node) -> Value:
    (x,) = node.arrays
    return node.value(linalg.cholesky(x, upper=not node.get("lower", default=False)))


def _solved(a: Any, b: Any, *, left: bool, lower: bool, turned: bool, unit: bool) -> Any:
    """The x for which a·x = b, or x·a = b; with `turned` that of aᵀ."""
    if not left:
        x = _solved(a, dnp.matrix_transpose(b), left=True, lower=lower, turned=not turned, unit=unit)
        return dnp.matrix_transpose(x)
    if turned:
        a, lower = dnp.matrix_transpose(a), not lower
    return apply(dl.TriangularSolveOp, a, b, lower=lower, unit=unit)


def _triangle(node: Node) -> Value:
    a, b = node.arrays
    left, lower, turned, unit = (
        _letter(node, name) in letters for name, letters in (("side", "L"), ("uplo", "L"), ("trans_x", "TC"), ("diag", "U"))
    )
    return node.value(_solved(a, b, left=left, lower=lower, turned=turned, unit=unit))


def triangular_solve(node: Node) -> Value:
    a, b = node.arrays
    left, lower, unit = (bool(node.get(name, default=False)) for name in ("left_side", "lower", "unit_diagonal"))
    turned = node.word(("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"), "transpose_a") != "NO_TRANSPOSE"
    return node.value(_solved(a, b, left=left, lower=lower, turned=turned, unit=unit))


def _lu(node: Node) -> Sequence[Value]:
    (x,) = node.arrays
    factors, _, pivots = triangles(x)
    return _values(node, factors, convert(dnp.add(pivots, 1), np.int32), _found(x))


def _reflections(node: Node) -> Sequence[Value]:
    """R, below whose diagonal the vectors of the reflections lie that make Q, and how far each of them goes."""
    (x,) = node.arrays
    rows, count = x.shape[-2:]
    triangle, vectors, scales = apply_all(dl.HouseholderOp, dnp.matrix_transpose(x))
    below = dnp.tril(dnp.matrix_transpose(vectors), k=-1)
    if rows < count:
        below = dnp.concat([below, dnp.zeros((*x.shape[:-1], count - rows), x.dtype)], axis=-1)
    return _values(node, dnp.add(dnp.matrix_transpose(triangle), below), scales)


def _columns(node: Node) -> Value:
    """The Q of such vectors, with as many columns as there are."""
    x, scales = node.arrays
    rows, count = x.shape[-2:]
    number = scales.shape[-1]
    below = dnp.tril(x[..., :number], k=-1)
    vectors = dnp.add(below, np.eye(rows, number, dtype=x.dtype))
    return node.value(dnp.matrix_transpose(apply(dl.OrthogonalOp, dnp.matrix_transpose(vectors), scales, count=count)))


def _eigenvectors(node: Node) -> Sequence[Value]:
    (x,) = node.arrays
    triangle = _letter(node, "uplo")
    if _letter(node, "mode") == "N":
        return _values(node, x, linalg.eigvalsh(x, triangle), _found(x))
    values, vectors = linalg.eigh(x, triangle)
    return _values(node, vectors, values, _found(x))


def _singular_vectors(node: Node) -> Sequence[Value]:
    """Vectors that are not asked for are zeros."""
    (x,) = node.arrays
    mode = _letter(node, "mode")
    if mode == "N":
        u, vt = (dnp.zeros(type.shape, x.dtype) for type in node.op.types[2:4])
        return _values(node, x, linalg.svdvals(x), u, vt, _found(x))
    u, s, vt = linalg.svd(x, full_matrices=mode == "A")
    return _values(node, x, s, u, vt, _found(x))


# What LAPACK calls them, behind the letter of the element type.
_LAPACK: dict[str, Converter] = {
    "potrf": _root, "trsm": _triangle, "getrf": _lu, "geqrf": _reflections, "orgqr": _columns, "syevd": _eigenvectors,
    "gesdd": _singular_vectors,
}  # fmt: skip

OPERATORS: dict[str, Converter] = {
    **{f"stablehlo.custom_call @lapack_{of}{name}_ffi": rule for name, rule in _LAPACK.items() for of in "sd"},
    "stablehlo.cholesky": cholesky,
    "stablehlo.triangular_solve": triangular_solve,
}
