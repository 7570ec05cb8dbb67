"""Operators against PyTorch itself: exported, and in torch.compile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import dlc

torch = pytest.importorskip("torch")
pytest.importorskip("torch.ao.quantization.fx._decomposed")
backend: Any = pytest.importorskip("dlc.pytorch.backend").dlc
QUANTIZED = torch.ops.quantized_decomposed
RANDOM = torch.Generator().manual_seed(0)


def f(*shape: int) -> Any:
    return torch.randn(shape, generator=RANDOM)


def i(low: int, high: int, *shape: int, dtype: Any = torch.int8) -> Any:
    return torch.randint(low, high, shape, dtype=dtype, generator=RANDOM)


SPECIAL = [0.0, -0.0, 1.0, 0.5, 3.0, -0.3, torch.inf, -torch.inf, torch.nan]
CONVOLUTION = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1, False, False, True)
POLYNOMIALS = [
    *((f"{prefix}chebyshev", kind) for prefix in ("", "shifted_") for kind in "tuvw"),
    *(("hermite", "h"), ("hermite", "he"), ("laguerre", "l"), ("legendre", "p")),
]
BESSEL = [
    *("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "modified_bessel_k0", "modified_bessel_k1", "spherical_bessel_j0"),
    *("scaled_modified_bessel_k0", "scaled_modified_bessel_k1"),
]
# The function, and its arguments.
CASES: dict[str, tuple[Callable[..., Any], Sequence[Any]]] = {
    "frexp": (torch.frexp, [torch.tensor([*SPECIAL, 1e-40, 1e30])]),
    "frexp of f64": (torch.frexp, [torch.tensor([*SPECIAL, 1e-320, 1e300], dtype=torch.float64)]),
    "frexp of f16": (torch.frexp, [torch.tensor([*SPECIAL, 1e-7, 6e4]).half()]),
    "view of narrower integers": (lambda x: x.view(torch.int16) + 0, [f(3, 4)]),
    "view of bytes": (lambda x: x.view(torch.uint8) + 0, [f(3, 4)]),
    "view of wider integers": (lambda x: x.view(torch.int64) + 0, [f(3, 4)]),
    "view of wider floats": (lambda x: x.view(torch.float32) * 1, [i(0, 2**15, 3, 8, dtype=torch.int16)]),
    "view of bools": (lambda x: x.view(torch.uint8) + 0, [f(3, 4) > 0]),
    "view as bools": (lambda x: x.view(torch.bool) & True, [i(0, 2, 3, 4, dtype=torch.uint8)]),
    "orthogonal polynomials": (
        lambda x, n: [getattr(torch.special, f"{name}_polynomial_{kind}")(x, n) for name, kind in POLYNOMIALS],
        [f(3, 7).clip(-2, 2), torch.arange(-1, 6)],
    ),
    "Bessel functions": (
        lambda x: [getattr(torch.special, name)(x) for name in BESSEL],
        # At infinity PyTorch gives NaN for J and Y, where the limit is 0.
        [torch.tensor([0.0, 0.3, 2.0, 7.5, 20.0, 60.0])],
    ),
    "flatten nothing": (lambda x: torch.flatten(x, 1, 2), [f(0, 3, 4, 2)]),
    "flatten a number": (torch.flatten, [f()]),
    "collapse": (lambda x: torch.ops.prims.collapse(x, 1, 2), [f(2, 3, 4)]),
    "_index_put_impl": (
        lambda x, k, v: torch.ops.aten._index_put_impl(x, [k], v, True),
        [f(5, 2), i(0, 5, 3, dtype=torch.int64), f(3, 2)],
    ),
    "_convolution": (lambda x, w: torch.ops.aten._convolution(x, w, None, *CONVOLUTION, True), [f(1, 2, 5, 5), f(3, 2, 3, 3)]),
    "_convolution.deprecated": (
        lambda x, w: torch.ops.aten._convolution.deprecated(x, w, None, *CONVOLUTION),
        [f(1, 2, 5, 5), f(3, 2, 3, 3)],
    ),
    "quantize": (lambda x: QUANTIZED.quantize_per_tensor(x, 0.05, 3, -128, 127, torch.int8), [f(3, 4) * 3]),
    "quantize in a range": (lambda x: QUANTIZED.quantize_per_tensor(x, 0.05, 3, 0, 127, torch.uint8), [f(3, 4) * 3]),
    "quantize to int32": (lambda x: QUANTIZED.quantize_per_tensor(x, 0.05, 1, -(2**31), 2**31 - 1, torch.int32), [f(3, 4)]),
    "quantize by tensors": (
        lambda x, s, z: QUANTIZED.quantize_per_tensor.tensor(x, s, z, -128, 127, torch.int8),
        [f(3, 4) * 3, torch.tensor(0.05), torch.tensor(3)],
    ),
    "quantize channels": (
        lambda x, s, z: QUANTIZED.quantize_per_channel(x, s, z, 0, -127, 127, torch.int8),
        [f(3, 4) * 3, f(3).abs() + 0.01, torch.tensor([0, 1, 2])],
    ),
    "parameters of a tensor": (
        lambda x: [v.double() for v in QUANTIZED.choose_qparams.tensor(x, -128, 127, 1e-5, torch.int8)],
        [f(3, 4) * 3 + 2],
    ),
    "symmetric parameters of a tensor": (
        lambda x: [v.double() for v in QUANTIZED.choose_qparams_symmetric.tensor(x, -127, 127, 1e-5, torch.uint8)],
        [f(3, 4) * 3],
    ),
    "tokens": (
        lambda x: QUANTIZED.quantize_per_token(x, *QUANTIZED.choose_qparams_per_token(x, torch.int8), -128, 127, torch.int8),
        [f(2, 3, 8) * 3],
    ),
    "affine tokens": (
        lambda x: QUANTIZED.dequantize_per_token(
            x.to(torch.int8),
            *QUANTIZED.choose_qparams_per_token_asymmetric(x, torch.int8),
            -128,
            127,
            torch.int8,
            torch.float32,
        ),
        [f(2, 3, 8) * 3 + 1],
    ),
    "groups": (
        lambda x, s, z: QUANTIZED.quantize_per_channel_group(x, s, z, -8, 7, torch.int8, 4),
        [f(3, 8) * 3, f(3, 2).abs() + 0.1, torch.tensor([[0, 1], [2, 0], [-1, 1]])],
    ),
    "dequantized groups": (
        lambda x, s, z: QUANTIZED.dequantize_per_channel_group(x, s, z, -8, 7, torch.int8, 4, torch.float32),
        [i(-8, 8, 3, 8), f(3, 2).abs() + 0.1, torch.tensor([[0, 1], [2, 0], [-1, 1]])],
    ),
    "dequantize": (lambda x: QUANTIZED.dequantize_per_tensor(x, 0.05, 3, -128, 127, torch.int8), [i(-128, 128, 3, 4)]),
    "dequantize int32": (
        lambda x: QUANTIZED.dequantize_per_tensor(x, 0.05, 0, -(2**31), 2**31 - 1, torch.int32),
        [i(-500, 500, 3, 4, dtype=torch.int32)],
    ),
    "dequantize channels": (
        lambda x, s, z: QUANTIZED.dequantize_per_channel(x, s, z, 1, -127, 127, torch.int8),
        [i(-127, 128, 3, 4), f(4).abs() + 0.01, torch.tensor([0, 1, 2, 5])],
    ),
}


class Function(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: Any) -> Any:
        return self.function(*arguments)


@pytest.mark.parametrize("name", CASES)
def test_operator(name: str) -> None:
    function, arguments = CASES[name]
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=backend, options={"target": "reference"})(*arguments)
    model = dlc.from_torch(Function(function), tuple(arguments), target="reference", cache=False)
    exported = [torch.from_numpy(np.array(array)) for array in model(*arguments).values()]
    expected = function(*arguments)
    expected, compiled = ([r] if isinstance(r, torch.Tensor) else list(r) for r in (expected, compiled))
    for results in (compiled, exported):
        for result, wanted in zip(results, expected, strict=True):
            torch.testing.assert_close(result, wanted, equal_nan=True)
