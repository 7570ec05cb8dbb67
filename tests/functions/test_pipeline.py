"""Pipeline parallelism: losses and gradients equal those of the layers one after the other. Ranks are threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc.errors import DTypeError, ShapeError
from dlc.runtime.collectives.threads import run_ranks
from dlc.testing.sample import F32, values

LAYERS = {"w": values(F32, 4, 6, 6, scale=0.5), "b": values(F32, 4, 6, seed=1)}
HEAD, X, Y = values(F32, 6, 3, seed=2), values(F32, 16, 6, seed=3), values(F32, 16, 3, seed=4)


def layer(parameters: Any, h: Any) -> Any:
    return dnp.tanh(h @ parameters["w"] + parameters["b"])


def loss(head: Any, h: Any, targets: Any) -> Any:
    return dnp.mean((h @ head - targets) ** 2)


def plain(layers: Any, head: Any, x: Any, targets: Any) -> Any:
    for k in range(4):
        x = layer(dlc.tree.map(lambda a: a[k], layers), x)  # noqa: B023
    return loss(head, x, targets)


def gradients_on(axes: dict[str, int], num_micro_batches: int = 4) -> Any:
    mesh = dlc.make_mesh(axes) if axes else None
    batch_axes = [name for name in axes if name == "data"]
    network = dlc.pipeline(layer, loss, num_micro_batches=num_micro_batches, batch_axes=batch_axes)
    return dlc.jit(mesh=mesh, num_threads=1)(dlc.value_and_grad(network, (0, 1, 2)))


@pytest.mark.parametrize("axes", [{}, {"stage": 1}, {"stage": 2}, {"stage": 4}, {"data": 2, "stage": 2}], ids=str)
def test_loss_and_gradients(axes: dict[str, int]) -> None:
    gradients = gradients_on(axes)
    expected = dlc.tree.leaves(dlc.jit(dlc.value_and_grad(plain, (0, 1, 2)))(LAYERS, HEAD, X, Y))

    def run(rank: int) -> list[Any]:
        return dlc.tree.leaves(dlc.collect(gradients(LAYERS, HEAD, X, Y)))

    for results in run_ranks(dlc.make_mesh(axes), run) if axes else [run(0)]:
        for got, want in zip(results, expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_schedule() -> None:
    """M + 2(S - 1) ticks exchange two messages each; gradients are combined once."""
    text = gradients_on({"stage": 4}, 8).lower(LAYERS, HEAD, X, Y).as_text("sharding").partition("builtin.module")[0]
    assert text.count("dl.permute") == text.count(": 14 × ") == 2 and "// layers['w']: P('stage', None, None)" in text
    assert text.count("dl.all_reduce") == text.count("dl.all_reduce at test_pipeline.py") == text.count(": 1 × ") == 1


def test_without_derivatives() -> None:
    network = dlc.pipeline(layer, loss, num_micro_batches=2)
    mesh = dlc.make_mesh({"stage": 2})
    compiled = dlc.jit(mesh=mesh)(network)
    for value in run_ranks(mesh, lambda rank: compiled(LAYERS, HEAD, X, Y)):
        np.testing.assert_allclose(value, plain(LAYERS, HEAD, X, Y), rtol=1e-5)


@pytest.mark.parametrize("axes", [{}, {"stage": 2}], ids=str)
def test_losses_of_another_dtype(axes: dict[str, int]) -> None:
    """Layers in half precision, and their loss in single precision."""
    layers, head, x = dlc.tree.map(lambda a: a.astype(np.float16), (LAYERS, HEAD, X))
    mesh = dlc.make_mesh(axes) if axes else None
    network = dlc.pipeline(layer, lambda *a: loss(*(v.astype(F32) for v in a)), num_micro_batches=4)
    gradients = dlc.jit(mesh=mesh)(dlc.value_and_grad(network, (0, 1, 2)))
    expected = dlc.tree.leaves(dlc.jit(dlc.value_and_grad(plain, (0, 1, 2)))(LAYERS, HEAD, X, Y))

    def run(rank: int) -> list[Any]:
        return dlc.tree.leaves(dlc.collect(gradients(layers, head, x, Y)))

    for results in run_ranks(mesh, run) if mesh else [run(0)]:
        assert [result.dtype for result in results] == [np.float32, *[np.float16] * 4]
        for got, want in zip(results, expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-2 * np.abs(want).max())


def test_errors() -> None:
    mesh = dlc.make_mesh({"stage": 3})
    with pytest.raises(
        ShapeError, match=r"test_pipeline.py:\d+: dlc.pipeline: axis 0 of the layers has the size 4; expected a mul"
    ):
        dlc.jit(mesh=mesh)(lambda *a: dlc.pipeline(layer, loss, num_micro_batches=4)(*a)).lower(LAYERS, HEAD, X, Y)
    with pytest.raises(ShapeError, match="the batch has the size 16; expected a multiple of 5"):
        dlc.jit(mesh=mesh)(lambda *a: dlc.pipeline(layer, loss, num_micro_batches=5)(*a)).lower(LAYERS, HEAD, X, Y)
    with pytest.raises(DTypeError, match="'stage' is not an axis of the mesh data=2"):
        gradients_on({"data": 2}).lower(LAYERS, HEAD, X, Y)
    for mesh_or_none in (mesh, None):
        with pytest.raises(ShapeError, match="num_micro_batches = 0; expected at least 1"):
            dlc.jit(mesh=mesh_or_none)(dlc.pipeline(layer, loss, num_micro_batches=0)).lower(LAYERS, HEAD, X, Y)
        with pytest.raises(ShapeError, match=r"the loss has shape \(8, 3\); expected a scalar"):
            layers = dlc.tree.map(lambda a: a[:3], LAYERS)
            network = dlc.pipeline(layer, lambda head, h, targets: h @ head - targets, num_micro_batches=2)
            dlc.jit(mesh=mesh_or_none)(network).lower(layers, HEAD, X, Y)
    with pytest.raises(ShapeError, match="the layers contain a scalar"):
        network = dlc.pipeline(lambda p, h: p * h, loss, num_micro_batches=2)
        dlc.jit(mesh=mesh)(network).lower(np.float32(1), HEAD, X, Y)
    with pytest.raises(DTypeError, match="the axis 'stage' is given twice"):
        network = dlc.pipeline(layer, loss, num_micro_batches=2, batch_axes=["stage"])
        dlc.jit(mesh=dlc.make_mesh({"stage": 2}))(network).lower(LAYERS, HEAD, X, Y)
