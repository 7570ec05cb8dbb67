"""Reshapes of strided buffers: views if strides describe them, else copies."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from dlc.backends.reference import evaluate_function
from dlc.dialects.registry import make_context
from dlc.ir import memref, parse_module
from dlc.passes.base import kernels_of
from dlc.passes.tiling.bufferize_kernels import BufferizeKernelsPass
from dlc.passes.types import reshaped_strides

SHAPES = [(), (1,), (6,), (2, 3), (3, 2), (1, 6), (6, 1), (2, 1, 3), (1, 2, 3), (12,), (3, 4), (2, 2, 3), (2, 6), (4, 1, 3)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("around", [1, 2])
def test_reshaped_strides_match_numpy(shape: tuple[int, ...], around: int) -> None:
    for whole in product(*((size, size * around) for size in shape)):
        x = np.arange(np.prod(whole, dtype=int), dtype=np.int8).reshape(whole)[(*(slice(size) for size in shape), ...)]
        for new in (s for s in SHAPES if np.prod(s) == x.size):
            strides = reshaped_strides(x.shape, x.strides, new)
            copied = not np.shares_memory(x, x.reshape(new))
            assert (strides is None) == copied
            if strides is not None:
                np.testing.assert_array_equal(np.lib.stride_tricks.as_strided(x, new, strides), x.reshape(new))


STRIDED = """
builtin.module {{
  func.func @k(%x: tensor<4x10x6xf32>, %y: tensor<{shape}xf32>) -> tensor<{shape}xf32> attributes {{kernel}} {{
    %s = tensor.extract_slice %x[0, 1, 0] [4, 5, 6] [1, 2, 1] : tensor<4x10x6xf32> to tensor<4x5x6xf32>
    %r = tensor.{reshape} : tensor<4x5x6xf32> into tensor<{shape}xf32>
    %e = linalg.generic {{indexing_maps = [affine_map<({dims}) -> ({dims})>, affine_map<({dims}) -> ({dims})>],
        iterator_types = [{iterators}]}} ins(%r : tensor<{shape}xf32>) outs(%y : tensor<{shape}xf32>) {{
    ^bb0(%a: f32, %old: f32):
      %n = arith.negf %a : f32
      linalg.yield %n : f32
    }} -> tensor<{shape}xf32>
    func.return %e : tensor<{shape}xf32>
  }}
}}
"""


@pytest.mark.parametrize(
    ("reshape", "shape", "copies"),
    [
        ("collapse_shape %s [[0, 1], [2]]", (20, 6), 0),
        ("expand_shape %s [[0], [1], [2, 3]] output_shape [4, 5, 2, 3]", (4, 5, 2, 3), 0),
        ("collapse_shape %s [[0], [1, 2]]", (4, 30), 1),
    ],
)
def test_reshape_of_a_strided_view(reshape: str, shape: tuple[int, ...], copies: int) -> None:
    letters = ", ".join("abcd"[: len(shape)])
    iterators = ", ".join(['"parallel"'] * len(shape))
    text = STRIDED.format(reshape=reshape, shape="x".join(map(str, shape)), dims=letters, iterators=iterators)
    context = make_context()
    module = parse_module(context, text)
    BufferizeKernelsPass().apply(context, module)
    module.verify()
    assert sum(isinstance(op, memref.AllocaOp) for op in module.walk()) == copies
    x = np.random.default_rng(0).standard_normal((4, 10, 6), np.float32)
    y = np.zeros(shape, np.float32)
    (kernel,) = kernels_of(module)
    evaluate_function(kernel, [x, y])
    np.testing.assert_array_equal(y, -x[:, 1::2].reshape(shape))
