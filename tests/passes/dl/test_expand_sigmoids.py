"""`expand-sigmoids`: sigmoids and products with them become divisions by 1 + e⁻ˣ."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import dlc
from dlc.dialects.registry import make_context
from dlc.ir import parse_module
from dlc.nn import sigmoid, silu
from dlc.passes.dl.simplification.dce import DcePass
from dlc.passes.dl.simplification.expand_sigmoids import ExpandSigmoidsPass
from tests.targets import TARGETS

CONTEXT = make_context()


def ops(t: str, results: str) -> Counter[str]:
    types = ", ".join([f"tensor<4x{t}>"] * len(results.split(",")))
    module = parse_module(
        CONTEXT,
        f"""
        func.func @main(%x: tensor<4x{t}>, %y: tensor<4x{t}>) -> ({types}) {{
          %s = dl.sigmoid %x : (tensor<4x{t}>) -> tensor<4x{t}>
          %p = dl.mul %y, %s : (tensor<4x{t}>, tensor<4x{t}>) -> tensor<4x{t}>
          func.return {results} : {types}
        }}""",
    )
    ExpandSigmoidsPass().apply(CONTEXT, module)
    DcePass().apply(CONTEXT, module)
    module.verify()
    return Counter(op.name.removeprefix("dl.") for op in module.walk() if op.name.startswith("dl."))


def test_a_product_needs_no_multiplication() -> None:
    assert ops("f32", "%p") == {"neg": 1, "exp": 1, "constant": 1, "add": 1, "div": 1}
    # The sigmoid itself is a result too.
    assert ops("f64", "%p, %s")["mul"] == 1


def test_half_precision_stays_one_op_that_rounds_once() -> None:
    assert ops("f16", "%p") == {"sigmoid": 1, "mul": 1}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values(target: str, dtype: type) -> None:
    x = np.array([-np.inf, np.inf, np.nan, -1e30, -120, -89, -87, -20, -3.5, -1e-6, -0.0, 0, 0.7, 15, 88.5, 1e30], dtype)
    with np.errstate(all="ignore"):
        expected = 1 / (1 + np.exp(-x.astype(np.longdouble)))
        products = x * expected
    tiny = np.finfo(dtype).tiny
    s, p = (np.asarray(a) for a in dlc.jit(lambda x: (sigmoid(x), silu(x)), target=target, cache=False)(x))
    np.testing.assert_allclose(s, expected.astype(dtype), rtol=4 * np.finfo(dtype).eps, atol=4 * tiny)
    np.testing.assert_allclose(p, products.astype(dtype), rtol=5 * np.finfo(dtype).eps, atol=400 * tiny)
