"""PyTorch graphs with symbolic sizes compile to one program for all sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlc
from dlc.runtime.cpu.artifact import Artifact

torch = pytest.importorskip("torch")
F = torch.nn.functional

ROWS: dict[str, Callable[[Any], Any]] = {
    "logcumsumexp": lambda x: torch.logcumsumexp(x, 1),
    "cummax": lambda x: torch.cummax(x, 1),
    "unfold": lambda x: x.unfold(1, 3, 2),
    "median": lambda x: x.median(1),
}
IMAGES: dict[str, Callable[[Any], Any]] = {
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "linear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "corners": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
    "cubic": lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
    "as large": lambda x: F.interpolate(x[:, :, ::2, ::2], size=x.shape[2:], mode="bilinear"),
    "reflected": lambda x: F.pad(x, (2, 1, 1, 2), mode="reflect"),
    "repeated": lambda x: F.pad(x, (2, 1, 1, 2), mode="replicate"),
    "averaged": lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
}


@pytest.mark.parametrize("name", [*ROWS, *IMAGES])
def test_one_program(name: str) -> None:
    rank = 2 if name in ROWS else 4

    class Module(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return (ROWS | IMAGES)[name](x)

    sizes = {1: torch.export.Dim("t", min=5, max=500)}
    if rank == 4:
        sizes = {k: torch.export.Dim(f"s{k}", min=4, max=500) for k in (2, 3)}
    shape = (3, 9) if rank == 2 else (1, 2, 6, 8)
    exported = torch.export.export(Module(), (torch.randn(*shape),), dynamic_shapes={"x": sizes})
    model = dlc.from_torch(exported, num_threads=1)
    assert isinstance(model.artifact, Artifact)
    for more in (0, 2, 14):
        x = torch.randn(*(s + more if k in sizes else s for k, s in enumerate(shape)))
        expected = Module()(x)
        expected = [expected] if isinstance(expected, torch.Tensor) else list(expected)
        for got, want in zip(model(x.numpy()).values(), expected, strict=True):
            np.testing.assert_allclose(np.asarray(got), want.numpy(), 1e-5, 1e-5)


@pytest.mark.parametrize("needs_values", [False, True])
def test_ranges_of_exported_programs_are_guards(needs_values: bool) -> None:
    """They hold for one program for all sizes, and for a graph that is specialized per size, as for `fft`."""

    class Module(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.fft.fft(x).real if needs_values else x * 2

    n = torch.export.Dim("n", min=2, max=8)
    model = dlc.from_torch(
        torch.export.export(Module(), (torch.ones(5, 5),), dynamic_shapes={"x": {0: n, 1: n}}), num_threads=1
    )
    for size in (5, 2, 8):
        x = torch.ones(size, size)
        np.testing.assert_allclose(np.asarray(*model(x.numpy()).values()), Module()(x).numpy(), 1e-5, 1e-5)
    for size in (1, 9):
        with pytest.raises(dlc.ShapeError, match=rf"= {size}; expected a size in the declared range 2\.\.8"):
            model(np.ones((size, size), np.float32))


def test_a_dim_may_be_a_multiple_of_another() -> None:
    class Module(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.reshape(-1, 2, 3).sum(1) + x[::2]

    n = torch.export.Dim("n", min=1, max=64)
    exported = torch.export.export(Module(), (torch.ones(8, 3),), dynamic_shapes={"x": {0: 2 * n}})
    model = dlc.from_torch(exported, num_threads=1)
    assert isinstance(model.artifact, Artifact)
    for rows in (8, 4, 10):
        x = torch.randn(rows, 3)
        np.testing.assert_allclose(np.asarray(model(x.numpy())["output"]), Module()(x).numpy(), 1e-5, 1e-5)
    with pytest.raises(dlc.DlcError, match="got float32\\[7, 3\\]"):
        model(np.ones((7, 3), np.float32))


def test_linear_algebra_of_a_symbolic_size_is_one_program() -> None:
    class Module(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            factors = torch.linalg.lu_factor(x)
            root = torch.linalg.cholesky(x @ x.mT)
            inverse, exponential = torch.cholesky_inverse(root), torch.matrix_exp(x / 20)
            return torch.linalg.lu_solve(*factors, x + 1), inverse, torch.linalg.lu(x)[1], exponential, torch.linalg.pinv(x)

    n = torch.export.Dim("n", min=2, max=30)
    exported = torch.export.export(Module(), (torch.eye(5),), dynamic_shapes={"x": {0: n, 1: n}})
    model = dlc.from_torch(exported, num_threads=1)
    assert isinstance(model.artifact, Artifact)
    for size in (5, 2, 17):
        x = torch.randn(size, size, generator=torch.Generator().manual_seed(0)) + 2 * size * torch.eye(size)
        for got, want in zip(model(x.numpy()).values(), Module()(x), strict=True):
            np.testing.assert_allclose(np.asarray(got), want.numpy(), 1e-3, 1e-3)


def test_loops_carry_integers() -> None:
    loop = torch._higher_order_ops.while_loop

    def repeat(start: int, x: Any) -> Any:
        return loop(lambda i, y: i < 5, lambda i, y: (i + 1, y * (2 + i)), (start, x))

    compiled = torch.compile(repeat, backend="dlc", fullgraph=True, dynamic=True)
    for start in (0, 3):
        count, y = compiled(start, torch.ones(3))
        assert count == 5
        np.testing.assert_array_equal(y.numpy(), np.full(3, np.arange(2 + start, 7).prod()))
