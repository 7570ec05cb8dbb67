"""Complex inputs, outputs, parameters and gradients of PyTorch functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import dlc  # noqa: E402
from dlc.arrays import TensorInfo  # noqa: E402
from dlc.pytorch.complex_arrays import join_arrays, split_arrays, split_complex_values  # noqa: E402
from dlc.pytorch.fx_graph import FxGraph, FxNode, ValueRef  # noqa: E402


def compiled(function: Any, **keywords: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(function, backend="dlc", options={"target": "reference"}, **keywords)


def complex_tensor(*shape: int, dtype: Any = None) -> Any:
    return torch.randn(shape, dtype=dtype or torch.complex64)


def close(got: Sequence[Any], expected: Sequence[Any]) -> None:
    for result, wanted in zip(got, expected, strict=True):
        torch.testing.assert_close(result, wanted)


def test_each_complex_value_is_a_pair_of_arrays() -> None:
    infos = [TensorInfo("x", (3,), np.dtype(np.complex64)), TensorInfo("y", (3,), np.dtype(np.float32))]
    graph = FxGraph(infos, [FxNode("z", "mul.Tensor", [ValueRef("x"), ValueRef("y")])], [ValueRef("z")], [infos[0]])
    split = split_complex_values(graph)
    assert [str(info) for info in split.inputs] == ["x.real: float32[3]", "x.imag: float32[3]", "y: float32[3]"]
    assert [node.op for node in split.nodes] == ["complex", "mul.Tensor", "real", "imag"]
    assert [info.name for info in split.outputs] == ["x.real", "x.imag"]
    assert split_complex_values(split) == split
    arrays = [np.array([1 + 2j]), np.ones(3)]
    joined = join_arrays(split_arrays(arrays), [TensorInfo("a", (1,), arrays[0].dtype), TensorInfo("b", (3,), arrays[1].dtype)])
    assert all(np.array_equal(*pair) for pair in zip(joined, arrays, strict=True))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_arguments_and_results(dtype: Any) -> None:
    def products(z: Any, w: Any) -> Any:
        return (z * w).conj().t(), (z @ w).real.sum(), z.mT.conj(), torch.view_as_real(z.resolve_conj()), z[:, 1:]

    w, run = complex_tensor(4, dtype=dtype), compiled(products, dynamic=True)
    for n in (3, 5):
        z = complex_tensor(n, 4, dtype=dtype)
        close(run(z, w), products(z, w))
        close(run(z.conj(), w), products(z.conj(), w))


def test_integers_become_complex() -> None:
    x = torch.arange(8)
    close([compiled(torch.fft.rfft)(x)], [torch.fft.rfft(x)])


def test_gradients_with_complex_residuals() -> None:
    def power(x: Any, w: Any) -> Any:
        return (torch.fft.rfft(x) * w).abs().square().sum()

    gradients = []
    x, w = torch.randn(8), complex_tensor(5)
    for function in (power, compiled(power)):
        inputs = [tensor.clone().requires_grad_() for tensor in (x, w)]
        gradients.append(torch.autograd.grad(function(*inputs), inputs))
    close(*gradients)


def test_complex_parameters_are_constants() -> None:
    class Scale(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(complex_tensor(4))

        def forward(self, z: Any) -> Any:
            return z * self.weight

    module, z = Scale().eval(), complex_tensor(3, 4)
    with torch.no_grad():
        close([compiled(module)(z)], [module(z)])
    model = dlc.from_torch(module, (z,), target="reference")
    assert [info.name for info in model.inputs] == ["z.real", "z.imag"]
    got = model(z.real.numpy(), z.imag.numpy())
    close(
        [torch.complex(*(torch.from_numpy(np.asarray(got[f"output.{part}"])) for part in ("real", "imag")))],
        [module(z).detach()],
    )


def test_complex_matrices() -> None:
    linalg = torch.linalg
    x, b = complex_tensor(4, 4, dtype=torch.complex128), complex_tensor(4, 2, dtype=torch.complex128)
    tall = complex_tensor(6, 4, dtype=torch.complex128)

    def positive(x: Any) -> Any:
        return x @ x.mH + torch.eye(4)

    functions: list[Any] = [
        lambda x: (linalg.det(x), *linalg.slogdet(x), linalg.matrix_power(x, 3), torch.matrix_exp(x)),
        lambda x: (linalg.inv(x), linalg.solve(x, b), linalg.solve(x, b.mT, left=False), linalg.pinv(tall @ x)),
        lambda x: (*linalg.qr(tall @ x), linalg.cholesky(positive(x)), linalg.svdvals(tall @ x)),
        lambda x: (lambda u, s, vh: (u * s**2 @ vh,))(*linalg.svd(tall @ x, full_matrices=False)),
        lambda x: (lambda w, v: (v * w**2 @ v.mH, w))(*linalg.eigh(x + x.mH)),
        lambda x: (linalg.lu_solve(*linalg.lu_factor(x), b, adjoint=True), linalg.solve_triangular(x, b, upper=True)),
        lambda x: (torch.cholesky_solve(b, linalg.cholesky(positive(x))), linalg.norm(x), linalg.matrix_norm(x, 2)),
    ]

    def values_and_gradient(f: Any) -> list[Any]:
        leaf = x.clone().requires_grad_()
        results = f(leaf)
        sum((r.real.sum() + (r.abs() ** 2).sum()) for r in results).backward()
        return [*(r.detach() for r in results), leaf.grad]

    for f in functions:
        close(values_and_gradient(compiled(f)), values_and_gradient(f))
    reflections = torch.geqrf(tall)
    for f in (
        linalg.householder_product,
        lambda v, t: torch.ormqr(v, t, tall, transpose=True),
        lambda v, t: torch.linalg.lu(v)[1],
    ):
        close([compiled(f)(*reflections)], [f(*reflections)])
