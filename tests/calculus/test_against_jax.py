"""Gradients of models against those of JAX."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import lax, nn
from tests.calculus.jax_reference import RECORDED, leaves
from tests.calculus.models import MODELS

DLC = SimpleNamespace(
    np=dnp,
    lax=lax,
    nn=SimpleNamespace(**{**vars(nn), "attention": lambda q, k, v, mask: nn.attention(q, k, v, mask=mask)}),
    **{
        name: getattr(dlc, name)
        for name in ("checkpoint", "custom_vjp", "grad", "hessian", "hvp", "jacfwd", "jacrev", "value_and_grad", "vmap")
    },
)
BY_JAX = {name: value for name, value in np.load(RECORDED).items()}


def compare(name: str, target: str, dtype: Any, tolerance: float) -> None:
    function, arguments = MODELS[name](DLC)
    arguments = dlc.tree.map(lambda x: x.astype(dtype), arguments)
    results = leaves(dlc.jit(target=target, num_threads=1)(lambda *given: function(*given))(*arguments))
    assert {name + path for path in results} == {place for place in BY_JAX if place.partition("[")[0] == name}
    for path, got in results.items():
        expected = BY_JAX[name + path]
        assert (got.dtype, got.shape) == (dtype, expected.shape)
        scale = max(1.0, float(np.max(np.abs(expected), initial=0)))
        np.testing.assert_allclose(np.asarray(got), expected, rtol=0, atol=tolerance * scale, err_msg=name + path)


@pytest.mark.parametrize("name", MODELS)
def test_in_double_precision(name: str) -> None:
    compare(name, "reference", np.float64, 1e-9)


@pytest.mark.parametrize(
    ("name", "target"),
    [*((n, "cpu") for n in ("mlp", "cnn", "lstm", "gpt", "masked_attention", "implicit_layer")), ("per_sample", "opencl")],
)
def test_compiled(name: str, target: str) -> None:
    compare(name, target, np.float32, 2e-4)
