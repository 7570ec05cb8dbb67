"""Reductions of rows by the work-items of a group, on a device, for any number of rounds and any remainder."""

from __future__ import annotations

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc.runtime.opencl.devices import all_devices

pytestmark = pytest.mark.skipif(not all_devices(), reason="no OpenCL device")


# One round of 16 work-items with four elements each, several rounds, and a loop; with and without a partial round at the end.
@pytest.mark.parametrize(("rows", "terms"), [(16, 400), (17, 80), (17, 144), (17, 320), (17, 400), (34, 528)])
def test_products_of_rows(rows: int, terms: int) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((16, rows, terms), np.float32), rng.standard_normal((16, 1, terms), np.float32)
    got = dlc.jit(lambda x, y: dnp.einsum("smk,snk->smn", x, y), target="opencl:gpu")(x, y)
    np.testing.assert_allclose(np.asarray(got), x @ y.swapaxes(1, 2), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("rows", "length"), [(1, 129), (7, 2050), (130, 100), (130, 1000)])
def test_softmax(rows: int, length: int) -> None:
    x = np.random.default_rng(0).standard_normal((rows, length), np.float32)
    got = dlc.jit(lambda x: dlc.nn.softmax(x), target="opencl:gpu")(x)
    e = np.exp(x - x.max(-1, keepdims=True))
    np.testing.assert_allclose(np.asarray(got), e / e.sum(-1, keepdims=True), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("rows", "terms", "columns"), [(1, 768, 300), (1, 130, 768), (3, 1000, 257), (2, 4096, 64)])
def test_few_rows_times_a_matrix(rows: int, terms: int, columns: int) -> None:
    rng = np.random.default_rng(0)
    x, w, bias = (rng.standard_normal(s, np.float32) for s in ((rows, terms), (terms, columns), (columns,)))
    got = dlc.jit(lambda x: dnp.maximum(x @ w + bias, 0), target="opencl:gpu")(x)
    np.testing.assert_allclose(np.asarray(got), np.maximum(x @ w + bias, 0), rtol=1e-3, atol=1e-3)
