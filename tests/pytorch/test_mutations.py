"""Exported modules that mutate buffers, parameters and inputs, compared with PyTorch; skipped if it is not installed."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlc
from dlc.errors import DlcError, UnsupportedError

torch = pytest.importorskip("torch")
nn = torch.nn
TARGETS = ("cpu", "reference")


class Cache(nn.Module):
    """Appends rows to a buffer; the buffer has the name of an input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("x", torch.zeros(8, 3))
        self.rows = nn.Parameter(torch.zeros((), dtype=torch.int64), requires_grad=False)

    def forward(self, x: Any) -> Any:
        self.x.copy_(torch.roll(self.x, 1, 0) * 0.5)
        self.x[0] += x.sum(0)
        self.rows += x.shape[0]
        return self.x * 2


class Swap(nn.Module):
    """Mutates both inputs, and returns a value that was read before."""

    def forward(self, x: Any, y: Any) -> Any:
        old = x.clone()
        x.copy_(y)
        y.copy_(old)
        return {"old": old, "sum": x + y}


def exported(module: Any, *inputs: Any, **options: Any) -> Any:
    return torch.export.export(module, inputs, **options)


def close(got: Any, wanted: Any) -> None:
    np.testing.assert_allclose(np.asarray(got), wanted.detach().numpy(), rtol=1e-5, atol=1e-6)


def close_state(model: Any, module: Any, names: dict[str, str] | None = None) -> None:
    for name, value in (*module.named_buffers(), *module.named_parameters()):
        if name in model.defaults or name in (names or {}):
            close(model.defaults[(names or {}).get(name, name)], value)


@pytest.mark.parametrize("target", TARGETS)
def test_batch_norm_in_training(target: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    program = exported(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), torch.randn(6, 3))
    model, module = dlc.from_torch(program, target=target), program.module()
    assert list(model.defaults) == ["1.running_mean", "1.running_var", "1.num_batches_tracked"]
    copies = [copy.deepcopy(model)]
    for _ in range(2):
        x = torch.randn(6, 3)
        close(model(x)["output"], module(x))
        close_state(model, module)
    if target == "cpu":
        model.save(tmp_path / "m.dlc")
        copies += [dlc.load(tmp_path / "m.dlc"), pickle.loads(pickle.dumps(model))]
    x = torch.randn(6, 3)
    expected = module(x)
    for other in (model, *copies[1:]):
        close(other(x)["output"], expected)
        close_state(other, module)
    # The copy has the state of the module before the calls, and a call may pass the state.
    assert not copies[0].defaults["1.running_mean"].any()
    mean, var = np.zeros(4, np.float32), np.ones(4, np.float32)
    copies[0](x, mean, var)
    values = nn.functional.linear(x, program.state_dict["0.weight"], program.state_dict["0.bias"]).detach().numpy()
    np.testing.assert_allclose(mean, 0.1 * values.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(var, 0.9 + 0.1 * values.var(0, ddof=1), rtol=1e-5)
    assert not copies[0].defaults["1.running_mean"].any() and copies[0].defaults["1.num_batches_tracked"] == 1


def test_buffer_with_the_name_of_an_input(tmp_path: Path) -> None:
    with torch.no_grad():
        program = exported(Cache(), torch.randn(2, 3), dynamic_shapes=({0: torch.export.Dim("rows", min=1, max=9)},))
    torch.export.save(program, tmp_path / "m.pt2")
    module = program.module()
    models = [dlc.from_torch(program), dlc.compile_model(tmp_path / "m.pt2")]
    assert [info.name for info in models[0].inputs] == ["x", "rows", "b_x"]
    for rows in (2, 5, 1):
        x = torch.randn(rows, 3)
        expected = module(x)
        for model in models:
            close(model(x)["output"], expected)
            close_state(model, module, {"x": "b_x"})


_CONVERSIONS: tuple[Callable[[Any], Any], ...] = (
    lambda x: x.clone(),
    lambda x: x.numpy().copy(),
    lambda x: x.t().clone().t(),
    lambda x: np.repeat(x.numpy(), 2, 0)[::2],
)


@pytest.mark.parametrize("target", TARGETS)
def test_mutated_inputs(target: str) -> None:
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    model = dlc.from_torch(exported(Swap(), x, y), target=target)
    assert [info.name for info in model.outputs] == ["old", "sum"]
    for convert in _CONVERSIONS:
        first, second = convert(x), convert(y)
        results = model(first, second)
        for got, wanted in zip((first, second, results["old"], results["sum"]), (y, x, x, x + y), strict=True):
            close(got, wanted)
    first, second = x.clone(), y.clone()
    close(model.submit(first, second).result()["sum"], x + y)
    close(first, y)


def test_mutated_complex_and_bfloat16_inputs() -> None:
    class Scale(nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            x.mul_(1j)
            y.add_(1)
            return x.real + y

    x, y = torch.complex(torch.randn(3), torch.randn(3)), torch.randn(3).bfloat16()
    model = dlc.from_torch(exported(Scale(), x.clone(), y.clone()))
    real, imaginary, z = x.real.clone(), x.imag.clone(), y.clone()
    model(real, imaginary, z)
    close(real, -x.imag)
    close(imaginary, x.real)
    assert torch.equal(z, y + 1)


def test_arrays_that_cannot_be_mutated() -> None:
    x = torch.randn(3, 4)
    model = dlc.from_torch(exported(Swap(), x, x.clone()))
    for unwritable in (x.tolist(), np.broadcast_to(np.float32(1), (3, 4)), torch.randn(3, 4).numpy().astype(np.float64)):
        with pytest.raises(DlcError, match=r"input y: float32\[3, 4\](: the call mutates it; pass a writable|; got float64)"):
            model(x, unwritable)
    with pytest.raises(UnsupportedError, match="mutates x, y, which is not supported on a mesh"):
        dlc.from_torch(exported(Swap(), x, x.clone()), mesh=dlc.make_mesh({"data": 1}))
