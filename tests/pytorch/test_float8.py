"""float8 tensors and scaled products, compared with PyTorch; skipped if it is not installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlc

torch = pytest.importorskip("torch")
DTYPES = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
# Ties, the largest values and the first values beyond them, subnormals, and no numbers.
EDGES = (0.0, -0.0, 248.0, 249.0, 448.0, 464.0, 465.0, 57344.0, 61440.0, -1e9, float("inf"), float("nan"), 2**-10, 3 * 2**-17)


def check(function: Callable[..., Any], *inputs: Any) -> None:
    class Call(torch.nn.Module):
        def forward(self, *tensors: Any) -> Any:
            return function(*tensors)

    exported = torch.export.export(Call(), inputs)
    expected = function(*inputs)
    results = [dlc.from_torch(exported, target=target)(*inputs) for target in ("cpu", "reference")]
    arrays = [np.asarray(array) for result in results for array in result.values()]
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="dlc", fullgraph=True)(*inputs)
    for got in (arrays[: len(expected)], arrays[len(expected) :], compiled):
        for value, wanted in zip(got, expected, strict=True):
            assert str(value.dtype).removeprefix("torch.") == str(wanted.dtype).removeprefix("torch.")
            value = value.float().numpy() if isinstance(value, torch.Tensor) else value.astype(np.float32)
            np.testing.assert_allclose(value, wanted.float().numpy(), 1e-5 if wanted.dtype == torch.float32 else 1e-2, 1e-6)


def test_conversions() -> None:
    values = torch.randn(3, 4) * 10
    dtypes = [getattr(torch, name) for name in DTYPES]

    def convert(x: Any, edges: Any, *narrow: Any) -> Any:
        stored = [result for dtype in dtypes for result in (x.to(dtype), edges.to(dtype).float())]
        return (*stored, *(result for y in narrow for result in (y.bfloat16() + 1, y.t().reshape(-1)[3:])))

    check(convert, values, torch.tensor(EDGES), *(values.to(dtype) for dtype in dtypes))


def test_scaled_products() -> None:
    x, y, scales = torch.randn(16, 32), torch.randn(32, 16), torch.rand(2)

    def products(x: Any, y: Any, scales: Any) -> Any:
        operands = [(x.to(dtype), y.to(dtype).t().contiguous().t()) for dtype in (torch.float8_e4m3fn, torch.float8_e5m2)]
        outputs = torch.float32, torch.bfloat16, torch.float16
        return tuple(torch._scaled_mm(*pair, *scales, out_dtype=out) for pair in operands for out in outputs)

    check(products, x, y, scales)
