"""Factors of matrices, and what is made of them. That a matrix has none is seen in the numbers, infinities and NaN."""

from __future__ import annotations

from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc.numpy import linalg
from dlc.pytorch.rules.table import Table

table = Table()


def _no_errors(x: Any) -> Any:
    return dnp.zeros(x.shape[:-2], np.int32)


@table("linalg_inv_ex")
def inverse(x: Any, check_errors: bool = False) -> Any:
    return linalg.inv(x), _no_errors(x)


@table("linalg_cholesky_ex")
def cholesky(x: Any, upper: bool = False, check_errors: bool = False) -> Any:
    return linalg.cholesky(x, upper=upper), _no_errors(x)


@table("_linalg_solve_ex")
def solve(a: Any, b: Any, left: bool = True, check_errors: bool = False) -> Any:
    if left and 1 < b.ndim == a.ndim - 1 and b.shape == a.shape[:-1]:
        # A vector for each matrix, which NumPy takes for one matrix.
        return linalg.solve(a, b[..., None])[..., 0], None, None, _no_errors(a)
    if left:
        return linalg.solve(a, b), None, None, _no_errors(a)
    turned = linalg.solve(dnp.swapaxes(a, -1, -2), dnp.swapaxes(b, -1, -2))
    return dnp.swapaxes(turned, -1, -2), None, None, _no_errors(a)


@table("_linalg_det")
def determinant(x: Any) -> Any:
    return linalg.det(x), None, None


@table("_linalg_slogdet")
def log_determinant(x: Any) -> Any:
    return (*linalg.slogdet(x), None, None)


@table("linalg_qr")
def qr(x: Any, mode: str = "reduced") -> Any:
    # Without the one of them, NumPy gives the other alone.
    return (dnp.zeros((0,), x.dtype), linalg.qr(x, mode="r")) if mode == "r" else linalg.qr(x, mode=mode)
