"""The normal distribution of vectors."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from dlc.errors import ShapeError
from dlc.numpy import broadcast_shapes, linalg, matmul, sqrt
from dlc.numpy.apply import AnyDType, ArrayLike, convert, promote_to_float, refuse
from dlc.numpy.functions.creation import Shape
from dlc.random.distributions import normal_from_key
from dlc.random.keys import as_int_shape, checked_key

__all__ = ["multivariate_normal"]


def multivariate_normal(
    key: ArrayLike,
    mean: ArrayLike,
    cov: ArrayLike,
    shape: Shape | None = None,
    dtype: AnyDType = None,
    method: Literal["cholesky", "eigh", "svd"] = "cholesky",
    *,
    reuse: bool = False,
) -> Any:
    """Draw vectors from the normal distribution of mean `mean` (…, n) and covariance `cov` (…, n, n).

    The result has the shape `shape`, by default that to which the leading axes broadcast, followed by n. `method` is the
    factorization of the covariance: "cholesky" requires a positive definite one, "eigh" and "svd" a positive semidefinite one.

    Raises ShapeError for other shapes.
    """
    center, covariance = promote_to_float(mean, cov, min_dtype=np.float32)
    count = center.shape[-1] if center.shape else 0
    if not center.shape or covariance.shape[-2:] != (count, count):
        got = f"mean of shape {center.shape} and cov of shape {covariance.shape}"
        refuse(ShapeError(f"dlc.random.multivariate_normal: {got}; expected (…, n) and (…, n, n)"))
    dtype = center.dtype if dtype is None else np.dtype(dtype)
    leading = broadcast_shapes(center.shape[:-1], covariance.shape[:-2]) if shape is None else as_int_shape(shape)
    center, covariance = convert(center, dtype), convert(covariance, dtype)
    if method == "cholesky":
        factor = linalg.cholesky(covariance)
    elif method == "eigh":
        values, vectors = linalg.eigh(covariance)
        factor = vectors * sqrt(values)[..., None, :]
    else:
        vectors, values, _ = linalg.svd(covariance)
        factor = vectors * sqrt(values)[..., None, :]
    normals = normal_from_key(checked_key("multivariate_normal", key, reuse), (*leading, count), dtype)
    return center + matmul(factor, normals[..., None])[..., 0]
