"""Results of torch.compile that are views: values, strides and aliasing are PyTorch's at every size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import dlc

torch = pytest.importorskip("torch")
backend: Any = pytest.importorskip("dlc.pytorch.backend").dlc

SHAPES = [(3, 4), (5, 6), (7, 8)]
# The second shape makes the sizes symbolic.
VIEWS: dict[str, Callable[[Any], Sequence[Any]]] = {
    "half": lambda x: (x[:, x.shape[1] // 2 :], x + 1),
    "views only": lambda x: (x[:, x.shape[1] // 2 :], x[1:].t()),
    "chunk": lambda x: (*x.chunk(2, 1), x + 1),
    "split": lambda x: (*x.split(2, 1), x + 1),
    "unbind": lambda x: (x.unbind(1)[1], x + 1),
    "expand": lambda x: (x[:, :1].expand(-1, x.shape[0]), (x * 2).sum().expand(x.shape)),
    "last rows": lambda x: (x[x.shape[0] - 2 :], x[-2:], x + 1),
    "step": lambda x: (x[:, ::2], (x + 1)[:, ::2]),
    "diagonal": lambda x: (x.diagonal(), (x * 2).diagonal(1)),
    "select": lambda x: (x[x.shape[0] - 1], (x * 2)[:, x.shape[1] - 1]),
    "view": lambda x: (x.view(x.shape[1], -1), x.view(x.shape[0], 2, -1).permute(2, 0, 1)[1:], x + 1),
    "dtype": lambda x: (x.view(torch.int32)[1:], (x * 2).view(torch.int32).t(), x + 1),
    "argument": lambda x: (x, x + 1),
    "intermediate": lambda x: ((x * 2)[:, x.shape[1] // 2 :].t(), x + 1),
    "intermediates": lambda x: (lambda y: (y[:, y.shape[1] // 2 :].t(), y, y[1:]))(x * 2),
    "numbers": lambda x: (x.shape[0], x.shape[1] / 4, x.shape[0] * x.shape[1], x.shape[0] > 4, None, x + 1),
}
# Sizes, offsets and bounds that are elements of a tensor.
DATA_DEPENDENT_VIEWS: dict[str, tuple[Callable[[Any, Any], Sequence[Any]], Sequence[Any]]] = {
    "start": (lambda x, k: (x[k.item() :], (x * 2)[:, k.item() :].t(), x + 1), [2, 0, -2]),
    "index": (lambda x, k: (x[k.item()], (x * 2)[: k.item()]), [2, 1]),
    "tolist": (lambda x, k: (lambda a, n: (x.narrow(0, a, n), (x * 2).narrow(1, a, n)))(*k.tolist()), [[1, 2], [2, 3]]),
    "integer of float": (lambda x, k: (lambda n: (x[:, n:], (x * 2)[n:].t(), n))(int((x[0, 0] * 0 + k).item())), [2, 1]),
    "minimum": (lambda x, k: (lambda n: (x[:, n:], n))(torch.sym_min(k.item(), 2)), [3, 1]),
    "count": (lambda x, k: (x[x > 0][1:], torch.nonzero(x).t(), k.item() * 2), [1, 2]),
}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def check(got: Sequence[Any], expected: Sequence[Any]) -> None:
    for result, wanted in zip(got, expected, strict=True):
        torch.testing.assert_close(result, wanted)
        if isinstance(wanted, torch.Tensor):
            assert (result.stride(), result.storage_offset()) == (wanted.stride(), wanted.storage_offset())


@pytest.mark.parametrize("name", VIEWS)
def test_views(name: str) -> None:
    compiled = torch.compile(VIEWS[name], backend=backend, options={"target": "reference"})
    for shape in SHAPES:
        x = torch.randn(shape)
        results = compiled(x)
        check(results, VIEWS[name](x))
        for result, expected in zip(results, VIEWS[name](x), strict=True):
            if isinstance(result, torch.Tensor):
                assert (result.untyped_storage()._cdata == x.untyped_storage()._cdata) == (
                    expected.untyped_storage()._cdata == x.untyped_storage()._cdata
                )


@pytest.mark.parametrize("name", sorted(VIEWS.keys() - {"argument", "dtype"}))
def test_views_in_training(name: str) -> None:
    compiled = torch.compile(VIEWS[name], backend=backend, options={"target": "reference"})
    for shape in SHAPES[:2]:
        x = torch.randn(shape)
        gradients: list[Any] = []
        for function in (compiled, VIEWS[name]):
            leaf = x.clone().requires_grad_()
            results = [r for r in function(leaf) if isinstance(r, torch.Tensor)]
            check(results, [r for r in VIEWS[name](x) if isinstance(r, torch.Tensor)])
            gradients += torch.autograd.grad(sum((r * r.detach().sin()).sum() for r in results), leaf)
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


def test_views_of_strided_arguments() -> None:
    def views(x: Any) -> Any:
        return x[1:].t(), (x * 2)[:, 1:], x + 1

    compiled = torch.compile(views, backend=backend, options={"target": "reference"})
    rows = torch.randn(12, 6)
    for x in (rows[:5], rows[2:7], rows[4:], rows.t(), rows[::2, 1:]):
        check(compiled(x), views(x))


@torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True)
@pytest.mark.parametrize("name", DATA_DEPENDENT_VIEWS)
def test_data_dependent_views(name: str) -> None:
    views, elements = DATA_DEPENDENT_VIEWS[name]
    compiled = torch.compile(views, backend=backend, options={"target": "reference"}, fullgraph=True)
    for shape in ((5, 6), (7, 8)):
        for element in elements:
            x, k = torch.randn(shape), torch.tensor(element)
            check(compiled(x, k), views(x, k))


@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
def test_a_selection_may_be_larger_than_its_operand_before_it_broadcasts() -> None:
    compiled = torch.compile(torch.masked_select, backend=backend, options={"target": "reference"}, fullgraph=True)
    x, mask = torch.randn(4, requires_grad=True), torch.rand(5, 4) > 0.1
    results = compiled(x, mask), torch.masked_select(x, mask)
    check(*results)
    check(*(torch.autograd.grad(result.sum(), x)[0] for result in results))


def test_gradients_share_no_memory() -> None:
    a, b = (torch.randn(3, 3, requires_grad=True) for _ in range(2))
    torch.compile(lambda a, b: a + b.t(), backend=backend, options={"target": "reference"})(a, b).backward(torch.ones(3, 3))
    a.grad.mul_(2)
    torch.testing.assert_close(b.grad, torch.ones(3, 3))


# Reads and updates of the storage, which is not always in the order of the elements.
STORAGE: dict[str, tuple[Callable[..., Any], Callable[[], Sequence[Any]]]] = {
    "transposed": (lambda x: x.t().as_strided((2, 2), (1, 2), 1) * 2, lambda: [torch.randn(3, 4)]),
    "transposed input": (lambda x: x.as_strided((2, 2), (1, 2), 1) * 2, lambda: [torch.randn(4, 3).t()]),
    "transposed result": (lambda x: (x.t() * 2).as_strided((2, 2), (1, 2), 1) * 2, lambda: [torch.randn(3, 4)]),
    "rest of the storage": (lambda x: x[1:, ::2].as_strided((2, 2), (1, 2), 0) * 2, lambda: [torch.randn(3, 4)]),
    "default offset": (lambda x: x[1:].as_strided((2, 2), (1, 2)) * 2, lambda: [torch.randn(3, 4)]),
    "overlapping": (lambda x: x.unfold(0, 3, 1).as_strided((4,), (1,)) * 2, lambda: [torch.randn(6)]),
    "channels last": (
        lambda x: x.as_strided((4, 5), (3, 1), 2) * 2,
        lambda: [torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)],
    ),
    "other dtype": (lambda x: x.view(torch.int32).t().as_strided((2, 2), (1, 2), 1) * 2, lambda: [torch.randn(3, 4)]),
    "update": (
        lambda x, y: torch.as_strided_scatter(x.t(), y, (2, 2), (1, 2), 1) * 2,
        lambda: [torch.randn(3, 4), torch.randn(2, 2)],
    ),
    "update of a slice": (
        lambda x, y: torch.as_strided_scatter(x[1:, ::2], y, (2, 2), (1, 2)) * 2,
        lambda: [torch.randn(3, 4), torch.randn(2, 2)],
    ),
    "update of overlapping elements": (
        lambda x, y: torch.as_strided_scatter(x.unfold(0, 3, 1), y, (2, 2), (1, 2), 1) * 2,
        lambda: [torch.randn(6), torch.randn(2, 2)],
    ),
}


class Function(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: Any) -> Any:
        return self.function(*arguments)


@pytest.mark.parametrize("name", STORAGE)
def test_storage_is_read_in_its_layout(name: str) -> None:
    function, draw = STORAGE[name]
    arguments = draw()
    compiled = torch.compile(function, backend=backend, options={"target": "reference"})
    check([compiled(*arguments)], [function(*arguments)])
    model = dlc.from_torch(Function(function), tuple(arguments), target="reference", cache=False)
    torch.testing.assert_close(torch.tensor(np.asarray(model(*arguments)["output"])), function(*arguments))


def test_storage_of_symbolic_sizes() -> None:
    def function(x: Any) -> Any:
        return x.t().as_strided((2, 2), (x.shape[1], 1), 1) * 2

    compiled = torch.compile(function, backend=backend, options={"target": "reference"})
    for shape in SHAPES:
        x = torch.randn(shape)
        check([compiled(x)], [function(x)])
