"""The primitive harnesses of JAX: functions that use each primitive with several shapes, dtypes and parameters.

They are part of the jax package and import absl (`pip install absl-py`). The expected results are JAX's on the CPU.
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

import dlc
from tests.suites.comparison import check_equal
from tests.suites.suite import NotComparableError, Suite, call_in_child

_SEED = 1234


def _square(factor: Any) -> Any:
    """Return the product of a Cholesky factor with its transpose, as the factor of an ill-conditioned matrix is sensitive."""
    return np.tril(factor) @ np.conj(np.tril(factor)).swapaxes(-1, -2)


def _unordered(result: Any) -> Any:
    """Return eigenvalues in a fixed order, or the magnitudes of each row of eigenvectors, which are unique up to factors."""
    return np.sort(result, -1) if result.ndim == 1 else np.sort(np.abs(result), -1)


# Harnesses whose results are unique only up to signs, order or rounding, or in one triangle, with the function that is compared.
_UNIQUE_PARTS = {"cholesky": _square, "eig": _unordered, "eigh": np.abs, "qr": np.abs, "svd": np.abs}
# Harnesses whose rounding errors are relative to the largest element, and the errors that they may have, in units of its last
# place. Those of singular vectors are inversely proportional to the distance of singular values.
_NORMWISE_ULPS = {"cholesky": 32, "fft": 32, "svd": 512}


def _rounding_error(group: str, wanted: Any) -> float:
    """Return the rounding error that each element may have in addition to the tolerance of its dtype."""
    return _NORMWISE_ULPS[group] * float(np.spacing(np.abs(wanted).max(initial=0))) if group in _NORMWISE_ULPS else 0.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", default="cpu", help="target of from_jax (default: cpu)")


def suite(arguments: argparse.Namespace) -> Suite:
    version, names = call_in_child(lambda: (import_module("jax").__version__, list(_harnesses())))
    return Suite(f"jax {version}, target {arguments.target}", names, lambda name: _run(name, arguments.target))


@cache
def _harnesses() -> dict[str, Any]:
    """Return the harnesses that JAX itself supports on the CPU, by name."""
    os.environ["JAX_ENABLE_X64"], os.environ["JAX_PLATFORMS"] = "1", "cpu"
    # JAX's test utilities parse the command line.
    sys.argv[1:] = []
    harnesses = import_module("jax._src.internal_test_util.test_harnesses").all_harnesses
    return {harness.fullname: harness for harness in harnesses if harness.filter("cpu")}


def _run(name: str, target: str) -> str:
    harness, jax = _harnesses()[name], import_module("jax")
    has_ties = harness.group_name == "approx_top_k" and harness.dtype == jax.numpy.bfloat16
    if harness.params.get("is_stable") is False or has_ties:
        raise NotComparableError("the order of equal elements is not defined")
    unique_part = _UNIQUE_PARTS.get(harness.group_name, np.asarray)
    arguments = harness.dyn_args_maker(np.random.RandomState(_SEED))
    expected = jax.jit(harness.dyn_fun)(*arguments)
    compiled = dlc.from_jax(harness.dyn_fun, *arguments, target=target, num_threads=1)
    got = jax.tree.leaves(compiled(*arguments))
    for k, (result, wanted) in enumerate(zip(got, jax.tree.leaves(expected), strict=True)):
        if jax.dtypes.issubdtype(wanted.dtype, jax.dtypes.prng_key):
            result, wanted = jax.random.key_data(result), jax.random.key_data(wanted)
        unique = np.asarray(unique_part(wanted))
        check_equal(unique_part(result), unique, f"result {k}", uncertainty=_rounding_error(harness.group_name, unique))
    return ""
