"""`arith.remf`, expanded and evaluated, is bit-identical to NumPy's fmod."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.backends.reference import evaluate
from dlc.dialects.registry import make_context
from dlc.ir import parse_module
from dlc.passes.loops.expand_math import ExpandMathPass

CONTEXT = make_context()


def operands(dtype: type) -> list[np.ndarray]:
    """Operands of all magnitudes, with nearly integer quotients, and edge cases."""
    rng = np.random.default_rng(1)
    f = np.finfo(dtype)
    decades = np.log10(f.max)
    wide = [rng.choice([-1.0, 1.0], 300) * 10 ** rng.uniform(-decades, decades, 300) for _ in range(2)]
    tenths = [np.round(rng.uniform(-1000, 1000, 300), 1), np.round(rng.uniform(-10, 10, 300), 1)]
    edges = np.array([0, -0.0, 1, -1, f.max, f.tiny, f.smallest_subnormal, np.inf, -np.inf, np.nan, 3, 1e4])
    pairs = [v.ravel() for v in np.meshgrid(edges, edges)]
    return [np.concatenate(vs).astype(dtype) for vs in zip(wide, tenths, pairs, strict=True)]


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("t", ["f32", "f64"])
def test_exact(t: str, fused: bool) -> None:
    x, y = operands({"f32": np.float32, "f64": np.float64}[t])
    vector, buffer = f"vector<{x.size}x{t}>", f"memref<{x.size}x{t}>"
    bounds = "{in_bounds = [true], permutation_map = affine_map<(d0) -> (d0)>}"
    module = parse_module(
        CONTEXT,
        f"""
        func.func @main(%x: {buffer}, %y: {buffer}, %z: {buffer}) attributes {{kernel}} {{
          %c0 = arith.constant 0 : index
          %f = arith.constant 0.0 : {t}
          %a = vector.transfer_read %x[%c0], %f {bounds} : {buffer}, {vector}
          %b = vector.transfer_read %y[%c0], %f {bounds} : {buffer}, {vector}
          %r = arith.remf %a, %b : {vector}
          vector.transfer_write %r, %z[%c0] {bounds} : {vector}, {buffer}
          func.return
        }}""",
    )
    ExpandMathPass(fused=fused).apply(CONTEXT, module)
    module.verify()
    assert not any(op.name == "arith.remf" for op in module.walk())
    with np.errstate(all="ignore"):
        (z,) = evaluate(module, [x, y])
        expected = np.fmod(x, y)
    np.testing.assert_array_equal(z, expected)
    np.testing.assert_array_equal(np.signbit(z)[~np.isnan(z)], np.signbit(expected)[~np.isnan(z)])
