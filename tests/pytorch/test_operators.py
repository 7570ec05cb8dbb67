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
QUANTIZED, ATEN = torch.ops.quantized_decomposed, torch.ops.aten
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
COMPLEX_FUNCTIONS = [
    *("sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "asinh", "acosh", "atanh", "exp", "expm1", "log"),
    *("log1p", "log2", "log10", "sqrt", "rsqrt", "sgn", "sigmoid", "reciprocal", "square"),
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
        lambda x, k, v: ATEN._index_put_impl(x, [k], v, True),
        [f(5, 2), i(0, 5, 3, dtype=torch.int64), f(3, 2)],
    ),
    "_index_put_impl with a mask": (
        lambda x, k, m, v: [
            ATEN.index_put(x, [k, m], v, True),
            ATEN.index_put(x, [m], v[:, None], False),
            ATEN.index_put(torch.stack([x, x]), [None, k, m], v),
        ],
        [f(5, 5), torch.tensor([0, 2, 4]), torch.tensor([True, False, True, True, False]), f(3)],
    ),
    "pairwise distances": (
        lambda x, y, g, d: (
            [ATEN._cdist_backward(g, x, y, p, torch.cdist(x, y, p)) for p in (0.0, 0.5, 1.0, 2.0, 3.0, torch.inf)]
            + [ATEN._pdist_backward(d, x, p, torch.pdist(x, p)) for p in (0.0, 1.0, 2.0, 3.0, torch.inf)]
        ),
        [
            torch.tensor([[1.0, 2, 3], [1, 4, 0], [2, 2, 5]]),
            torch.tensor([[1.0, 2, 3], [1, 0, 1], [0, 1, 7], [2, 1, 5]]),
            f(3, 4),
            f(3),
        ],
    ),
    "margin losses": (
        lambda x, t, labels, w, g: [
            *(ATEN.multi_margin_loss_backward(g, x, t, p, 0.7, v, 0) for p in (1, 2) for v in (w, None)),
            ATEN.multi_margin_loss_backward(g[0], x, t, 1, 1.0, w, 1),
            *(
                ATEN.multilabel_margin_loss_backward(v, x, labels, k, ATEN.multilabel_margin_loss_forward(x, labels, k)[1])
                for k, v in enumerate((g, g[0], g[0]))
            ),
        ],
        [f(3, 4), torch.tensor([1, 0, 3]), torch.tensor([[0, 2, -1, 1], [3, -1, 0, 0], [1, 0, 2, 3]]), f(4).abs(), f(3)],
    ),
    "segments": (
        lambda x, n, g: [
            result
            for reduce in ("sum", "mean", "max", "min", "prod")
            for initial in (None, 2.0)
            for y in [torch.segment_reduce(x, reduce, lengths=n, axis=1, unsafe=True, initial=initial)]
            for result in (y, ATEN._segment_reduce_backward(g, y, x, reduce, lengths=n, axis=1, initial=initial))
        ],
        [torch.tensor([3.0, 1, -2, 0, 5, 2, 0, -1, 4, 3]).reshape(2, 5), torch.tensor([[2, 0, 3], [3, 2, 0]]), f(2, 3)],
    ),
    "segments by offsets": (
        lambda x, n: [torch.segment_reduce(x, reduce, offsets=n, axis=0) for reduce in ("sum", "max")],
        [f(5, 2), torch.tensor([0, 2, 2, 5])],
    ),
    "histogram": (
        lambda x, w: [
            *torch.histogram(x, 5),
            *torch.histogram(x, 4, range=(-1.0, 2.0), weight=w),
            *torch.histogram(x, torch.tensor([-1.0, 0, 0.5, 3]), density=True),
            *torch.histogram(x * 0, 2),
        ],
        [f(3, 4), f(3, 4)],
    ),
    "batch norm with its statistics": (
        lambda x, w, m, v: [
            *ATEN._batch_norm_with_update_functional(x, w, w, m, v, 0.2, 1e-3)[:5],
            *ATEN._batch_norm_with_update_functional(x, w, w, m, v, 0.2, 1e-3)[5:],
            ATEN._batch_norm_no_update(x, w, w, m, v, 0.2, 1e-3)[0],
        ],
        [f(4, 3, 2), f(3), f(3), f(3).abs()],
    ),
    "convert_element_type": (lambda x: torch.ops.prims.convert_element_type(x, torch.int32), [f(3, 4) * 5]),
    "geqrf": (lambda x: [*torch.geqrf(x), *torch.geqrf(x.mT)], [f(2, 4, 3)]),
    "real values among complex ones": (
        lambda y, k, v: torch.view_as_real(
            torch.stack(
                [
                    torch.complex(y, y + 1).copy_(y),
                    torch.complex(y, y + 1).index_fill(0, k, 2.5),
                    torch.complex(y, y + 1).index_fill(0, k, v),
                    torch.complex(y, y + 1).index_add(0, k, torch.complex(y, y)[:2]),
                    torch.complex(y, y + 1).scatter(0, k[:, None], 2.0),
                    torch.complex(y, y[:, :1]),
                    torch.polar(y, y[:1]),
                ]
            )
        ),
        [f(3, 4), torch.tensor([2, 0]), torch.tensor(1.5)],
    ),
    "functions of complex numbers": (
        lambda y, v: torch.view_as_real(
            torch.stack(
                [
                    *(getattr(torch, name)(torch.complex(y, v)) for name in COMPLEX_FUNCTIONS),
                    torch.complex(v, y).cumsum(0) * torch.complex(y, v).prod(),
                    torch.addcmul(torch.complex(y, y), torch.complex(y, v), torch.complex(v, y), value=0.5),
                    torch.addcdiv(torch.complex(y, y), torch.complex(y, v), torch.complex(v, y), value=2),
                    3 - torch.complex(y, v).prod(1, keepdim=True) + torch.complex(y, v).bool(),
                    torch.complex(y, v).all()
                    + torch.complex(y, v).logical_not()
                    + torch.complex(y, v).any(1, keepdim=True) * 1j,
                ]
            )
        ),
        [f(3, 4), f(3, 4)],
    ),
    "_convolution": (lambda x, w: ATEN._convolution(x, w, None, *CONVOLUTION, True), [f(1, 2, 5, 5), f(3, 2, 3, 3)]),
    "_convolution.deprecated": (
        lambda x, w: ATEN._convolution.deprecated(x, w, None, *CONVOLUTION),
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
    "conv_tbc": (lambda x, w, b: torch.conv_tbc(x, w, b, pad=2), [f(7, 2, 3), f(3, 3, 4), f(4)]),
    "true_divide": (lambda x, y: [ATEN.true_divide(x, y), ATEN.true_divide(x, 3)], [i(1, 9, 3, 4), i(1, 9, 4)]),
    "max_pool2d_with_indices_backward at any indices": (
        lambda g, x, k: ATEN.max_pool2d_with_indices_backward(g, x, [2, 2], [1, 1], [1, 1], [1, 1], False, k),
        [f(2, 4, 7, 6), f(2, 4, 6, 5), i(0, 16, 2, 4, 7, 6, dtype=torch.int64)],
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
