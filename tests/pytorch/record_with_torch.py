"""Record results of PyTorch for tests without it: `python -m tests.pytorch.record_with_torch`, where torch is installed.

Each operator with a rule is called on small tensors, and small modules are exported and trained. The graphs are written to
recorded.json, with the names of PyTorch's core operators, the tensors to recorded.npz.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch
import transformers.integrations.moe  # noqa: F401  # pyright: ignore[reportUnusedImport]
from torch import nn
from torch._higher_order_ops.while_loop import while_loop

from dlc.pytorch import backend
from dlc.pytorch.aot_graphs import AotGraph, DenseResult, StridedResult
from dlc.pytorch.exported_programs import convert_exported_program
from dlc.pytorch.fx_conversion import convert_argument, operator_name, tensor_info, tensor_to_array
from dlc.pytorch.fx_graph import FxGraph, FxNode, ValueRef
from tests.pytorch.graph_json import ARRAYS, RECORDED, graph_to_json

torch.manual_seed(0)


def f(*shape: int) -> Any:
    return torch.randn(*shape)


def pos(*shape: int) -> Any:
    return torch.rand(*shape) + 0.5


def i(high: int, *shape: int) -> Any:
    return torch.randint(0, high, shape)


def b(*shape: int) -> Any:
    return torch.rand(*shape) > 0.5


X, Y, P, Q = f(2, 3, 4), f(3, 4), pos(2, 3), pos(3)
UNIT = torch.rand(2, 3) * 1.6 - 0.8
INTS, MORE = torch.tensor([[-7, 5, 9], [4, -3, 2]]), torch.tensor([[2, -3, 4], [3, 2, -2]])
GROUPS = f(2, 4, 5)
IMAGE, KERNEL = f(1, 2, 5, 6), f(4, 2, 3, 3)
SQUARE, NANS = f(2, 3, 3) + 3 * torch.eye(3), f(2, 3, 4).where(f(2, 3, 4) > -1, torch.nan)
PLACES = torch.ops.aten.max_pool2d_with_indices(IMAGE, [3, 2], 2, 1)[1]
FLOATS_OF_UNIT = [
    "acos", "asin", "atan", "atanh", "cos", "cosh", "sin", "sinh", "tan", "tanh", "exp", "exp2", "expm1", "sigmoid", "erf",
    "erfc", "erfinv", "silu", "mish", "hardswish", "hardsigmoid", "abs", "neg", "sign", "relu", "isnan", "isinf", "ceil",
    "floor", "trunc", "round", "logical_not", "relu6", "log_sigmoid",
]  # fmt: skip
FLOATS_OF_POSITIVE = ["acosh", "log", "log2", "log10", "log1p", "sqrt", "reciprocal", "rsqrt", "lgamma", "digamma", "deg2rad"]
COMPARED = ["eq", "ne", "lt", "le", "gt", "ge"]
# The name of an operator, its positional arguments, and its keyword arguments.
CASES: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    *((op, (UNIT,), {}) for op in FLOATS_OF_UNIT),
    *((op, (P + 1,), {}) for op in FLOATS_OF_POSITIVE),
    *((f"{op}.Tensor", (INTS, MORE), {}) for op in COMPARED),
    *((f"{op}.Scalar", (X, 0.5), {}) for op in COMPARED),
    *((f"bitwise_{op}.Tensor", (INTS, MORE), {}) for op in ("and", "or", "xor")),
    *((f"{op}", (b(2, 3), b(2, 3)), {}) for op in ("logical_and", "logical_or", "logical_xor")),
    *((op, (X, Y), {}) for op in ("maximum", "minimum", "fmax", "fmin", "atan2")),
    ("add.Tensor", (X, Y), {"alpha": 2}), ("add.Tensor", (INTS, 0.5), {}), ("add.Tensor", (INTS, torch.tensor(0.5)), {}),
    ("add.Tensor", (b(3), b(3)), {}), ("add.Scalar", (X, 2), {}), ("sub.Tensor", (X, Y), {}), ("rsub.Scalar", (X, 1), {}),
    ("mul.Tensor", (X, torch.tensor(2.0, dtype=torch.float64)), {}), ("mul.Tensor", (INTS, f(3)), {}),
    ("div.Tensor", (INTS, MORE), {}), ("div.Tensor_mode", (INTS, MORE), {"rounding_mode": "floor"}),
    ("div.Tensor_mode", (INTS, MORE), {"rounding_mode": "trunc"}), ("div.Tensor_mode", (X, Y), {"rounding_mode": "trunc"}),
    ("floor_divide", (INTS, MORE), {}), ("remainder.Tensor", (INTS, MORE), {}), ("fmod.Tensor", (INTS, MORE), {}),
    ("remainder.Scalar", (X, 0.7), {}), ("fmod.Scalar", (X, 0.7), {}), ("pow.Tensor_Tensor", (P, UNIT), {}),
    ("pow.Tensor_Scalar", (X, 3), {}), ("pow.Tensor_Scalar", (INTS, 2), {}), ("pow.Scalar", (2.0, X), {}),
    ("bitwise_not", (INTS,), {}), ("bitwise_left_shift.Tensor_Scalar", (INTS, 2), {}), ("round.decimals", (X,), {"decimals": 1}),
    ("clamp", (X, -0.5, 0.5), {}), ("clamp", (X, None, 0.5), {}), ("clamp.Tensor", (X, -pos(4), None), {}),
    ("clamp_min", (INTS, 0), {}), ("clamp_max", (X, 0.1), {}), ("hardtanh", (X,), {}), ("where.self", (b(3, 4), X, Y), {}),
    ("masked_fill.Scalar", (X, b(3, 4), -1.0), {}), ("lerp.Scalar", (X, Y, 0.3), {}), ("addcmul", (X, Y, Y), {"value": 0.5}),
    ("addcdiv", (X, Y, pos(3, 4)), {}), ("gelu", (X,), {}), ("gelu", (X,), {"approximate": "tanh"}), ("elu", (X, 0.7), {}),
    ("elu", (X, 1.67, 1.05, 1.0), {}), ("leaky_relu", (X, 0.2), {}), ("softplus", (X,), {}), ("softplus", (X, 2.0, 1.0), {}),
    ("prelu", (X, f(3)), {}), ("logit", (P / 3,), {"eps": 0.01}), ("nan_to_num", (torch.tensor([np.nan, np.inf, 1.0]),), {}),
    ("_to_copy", (X,), {"dtype": torch.int64}), ("clone", (X,), {}), ("copy", (X, Y), {}), ("xlogy.Tensor", (P, P), {}),
    ("special_xlog1py", (P, P), {}),
    # Reductions.
    ("sum", (INTS,), {}), ("sum.dim_IntList", (X, [0, -1], True), {}), ("sum.dim_IntList", (b(2, 3), [1]), {}),
    ("sum.dim_IntList", (X, []), {}), ("prod", (P,), {}), ("prod.dim_int", (X, 1), {}), ("mean", (X,), {}),
    ("mean.dim", (X, [1], True), {}), ("amax", (X, [0, 2]), {}), ("amin", (X,), {}), ("any", (b(3),), {}),
    ("any.dim", (INTS, 1), {}), ("any.dims", (b(2, 3), [0], True), {}), ("all", (b(3),), {}), ("all.dim", (b(2, 3), 0), {}),
    ("argmax", (X,), {}), ("argmax", (X, 1, True), {}), ("argmin", (X, -1), {}), ("max", (X,), {}), ("max.dim", (X, 1), {}),
    ("min.dim", (X, 2, True), {}), ("max.other", (X, Y), {}), ("min.other", (X, Y), {}), ("var.correction", (X, [1]), {}),
    ("var.dim", (X, [1], False), {}), ("std.correction", (X, [0, 1]), {"correction": 0, "keepdim": True}),
    ("var_mean.correction", (X, [2]), {}), ("linalg_vector_norm", (X, 2, [1]), {}), ("linalg_vector_norm", (X, 1), {}),
    ("linalg_vector_norm", (X, 3, [2], True), {}), ("linalg_vector_norm", (X, float("inf"), [0]), {}),
    ("logsumexp", (X, [1]), {}), ("_softmax", (X, 1, False), {}), ("_log_softmax", (X, -1, False), {}),
    ("cumsum", (INTS, 1), {}), ("cumprod", (X, 2), {}), ("topk", (X, 2), {}), ("topk", (X, 2, 1, False), {}),
    ("sort", (X, 1, True), {}), ("sort.stable", (INTS,), {"stable": True}), ("argsort", (X, 2), {}),
    # Shapes.
    ("view", (X, [2, -1]), {}), ("flatten.using_ints", (X, 1), {}), ("permute", (X, [2, 0, 1]), {}), ("t", (Y,), {}),
    ("transpose.int", (X, 0, -1), {}), ("unsqueeze", (X, -1), {}), ("squeeze.dim", (f(2, 1, 3), 1), {}),
    ("squeeze.dims", (f(1, 1, 3), [0, 2]), {}), ("expand", (f(3, 1), [2, -1, 4]), {}), ("repeat", (Y, [2, 1, 2]), {}),
    ("repeat_interleave.self_int", (Y, 2, 1), {}), ("flip", (X, [0, 2]), {}), ("roll", (X, [1, -2], [1, 2]), {}),
    ("roll", (X, [3]), {}), ("cat", ([X, f(2, 1, 4)], 1), {}), ("cat", ([f(0), Y], 0), {}), ("stack", ([Y, Y + 1], 1), {}),
    ("slice.Tensor", (X, 2, 1, 2**63 - 1, 2), {}), ("slice.Tensor", (X, 1, -2, -1), {}), ("narrow", (X, 2, 1, 2), {}),
    ("select.int", (X, 1, -1), {}), ("split_with_sizes", (X, [1, 3], 2), {}), ("split.Tensor", (X, 3, 2), {}),
    ("chunk", (X, 2, 1), {}), ("unbind.int", (X, 1), {}), ("unfold", (f(2, 7), 1, 3, 2), {}), ("diagonal", (X, 1, 1, 2), {}),
    ("tril", (Y, 1), {}), ("triu", (Y,), {}), ("constant_pad_nd", (X, [1, 2, -1, 0], 3.0), {}),
    ("as_strided", (Y, [2, 2], [5, 1], 1), {}), ("slice_scatter", (Y, f(2, 4), 0, 1), {}),
    ("slice_scatter", (Y, f(3, 2), 1, 0, 4, 2), {}), ("select_scatter", (Y, f(4), 0, -1), {}),
    ("pixel_shuffle", (f(1, 4, 2, 3), 2), {}),
    # Indexing.
    ("embedding", (f(5, 3), i(5, 2, 3)), {}), ("index_select", (X, 1, i(3, 5)), {}), ("gather", (X, 1, i(3, 2, 2, 3)), {}),
    ("index.Tensor", (X, [None, i(3, 4)]), {}), ("index.Tensor", (X, [i(2, 3), None, i(4, 3)]), {}),
    ("index.Tensor", (X, [None, i(3, 2, 1), i(4, 3) - 4]), {}), ("index_put", (X, [i(2, 2), i(3, 2)], f(2, 4)), {}),
    ("index_put", (X, [b(2, 3, 4)], torch.tensor(7.0)), {}), ("index_put", (Y, [torch.tensor([0, 0])], f(2, 4), True), {}),
    ("scatter.src", (X, 2, torch.tensor([[[0, 2]]]), f(2, 3, 4)), {}), ("scatter.value", (Y, 1, i(4, 3, 1), 9.0), {}),
    ("scatter_add", (Y, 0, i(3, 2, 4), f(2, 4)), {}), ("scatter_reduce.two", (Y, 0, i(3, 2, 4), f(2, 4), "amax"), {}),
    ("index_add", (X, 1, torch.tensor([2, 2]), f(2, 2, 4)), {}), ("index_copy", (X, 1, torch.tensor([2, 0]), f(2, 2, 4)), {}),
    ("index_fill.int_Scalar", (X, 2, torch.tensor([1]), 5.0), {}), ("masked_scatter", (X, b(2, 3, 4), f(24)), {}),
    ("bucketize.Tensor", (X, torch.tensor([-1.0, 0.0, 1.0])), {}), ("isin.Tensor_Tensor", (INTS, torch.tensor([5, 2])), {}),
    # Creation.
    ("full", ([2, 3], 1.5), {}), ("full_like", (INTS, 3), {}), ("new_full", (X, [2], 4), {}), ("zeros", ([2],), {}),
    ("ones", ([2], ), {"dtype": torch.int32}), ("zeros_like", (INTS,), {}), ("ones_like", (X,), {}), ("fill.Scalar", (X, 2), {}),
    ("new_zeros", (X, [3]), {}), ("new_ones", (X, [3]), {}), ("scalar_tensor", (2,), {"dtype": torch.float32}),
    ("arange.start_step", (1, 9, 3), {}), ("arange", (4,), {}), ("arange.start", (0.5, 3), {}), ("linspace", (0, 1, 5), {}),
    ("eye", (3,), {}), ("tril_indices", (3, 3), {}), ("triu_indices", (3, 4, 1), {}),
    # Products.
    ("mm", (Y, f(4, 2)), {}), ("bmm", (X, f(2, 4, 2)), {}), ("linear", (X, f(5, 4), f(5)), {}),
    ("addmm", (f(2), Y, f(4, 2)), {"beta": 0.5, "alpha": 2}), ("baddbmm", (f(2, 1, 2), X, f(2, 4, 2)), {}),
    ("outer", (Q, f(2)), {}), ("einsum", ("abc,bc->a", [X, Y]), {}), ("_weight_norm", (f(3, 4), pos(3, 1)), {}),
    ("_cdist_forward", (f(3, 4), f(2, 4), 2.0, None), {}), ("_cdist_forward", (f(3, 4), f(2, 4), 1.0, None), {}),
    ("convolution", (IMAGE, KERNEL, f(4), [2, 1], [1, 0], [1, 2], False, [0, 0], 1), {}),
    ("convolution", (IMAGE, f(2, 1, 3, 3), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 2), {}),
    ("convolution", (IMAGE, f(2, 3, 3, 3), f(3), [2, 2], [1, 1], [1, 1], True, [1, 0], 1), {}),
    ("conv1d", (f(1, 2, 6), f(3, 2, 3), f(3)), {}), ("conv2d.padding", (IMAGE, KERNEL, None, [1, 1], "same"), {}),
    ("conv_transpose2d.input", (IMAGE, f(2, 3, 2, 2)), {}), ("scaled_dot_product_attention", (X, X, X), {"is_causal": True}),
    ("scaled_dot_product_attention", (X, f(2, 5, 4), f(2, 5, 4), f(3, 5)), {"scale": 0.3}),
    ("scaled_dot_product_attention", (X, f(2, 5, 4), f(2, 5, 4), b(3, 5) | (torch.arange(5) == 0)), {}),
    ("scaled_dot_product_attention", (f(1, 4, 3, 4), f(1, 2, 3, 4), f(1, 2, 3, 4)), {"enable_gqa": True}),
    # Normalization.
    ("layer_norm", (X, [3, 4], pos(3, 4), f(3, 4)), {}), ("native_layer_norm", (X, [4], pos(4), None, 1e-5), {}),
    ("rms_norm", (X, [4], pos(4), 1e-6), {}), ("group_norm", (IMAGE, 2, f(2), f(2)), {}),
    ("native_group_norm", (f(2, 4, 5), f(4), None, 2, 4, 5, 2, 1e-5), {}),
    ("_native_batch_norm_legit_no_training", (IMAGE, f(2), f(2), f(2), pos(2), 0.1, 1e-5), {}),
    ("_native_batch_norm_legit_functional", (IMAGE, f(2), f(2), f(2), pos(2), True, 0.1, 1e-5), {}),
    ("_native_batch_norm_legit.no_stats", (IMAGE, None, None, True, 0.1, 1e-5), {}),
    # Windows.
    ("max_pool2d_with_indices", (IMAGE, [3, 2], [2, 2], [1, 1], [1, 1], True), {}), ("max_pool1d", (f(1, 2, 7), [3]), {}),
    ("max_pool2d_with_indices_backward",
     (f(1, 2, 3, 4), IMAGE, [3, 2], [2, 2], [1, 1], [1, 1], False, PLACES), {}),
    ("avg_pool2d", (IMAGE, [3, 3], [2, 2], [1, 1], True, False), {}), ("avg_pool2d", (IMAGE, [2, 2]), {}),
    ("avg_pool2d", (IMAGE, [2, 2]), {"divisor_override": 3}), ("avg_pool3d", (f(1, 1, 3, 4, 4), [2, 2, 2]), {}),
    ("_adaptive_avg_pool2d", (IMAGE, [3, 4]), {}), ("_adaptive_avg_pool3d", (f(1, 1, 3, 4, 5), [1, 2, 3]), {}),
    ("adaptive_avg_pool1d", (f(1, 2, 7), [3]), {}), ("reflection_pad2d", (IMAGE, [1, 2, 0, 1]), {}),
    ("reflection_pad1d", (Y, [1, 2]), {}), ("replication_pad2d", (IMAGE, [1, 2, 0, 1]), {}),
    ("im2col", (IMAGE, [2, 3], [1, 1], [1, 0], [2, 1]), {}), ("max_unpool2d", (f(1, 1, 2), torch.tensor([[[1, 4]]]), [2, 3]), {}),
    ("col2im", (f(1, 2 * 4, 12), [4, 5], [2, 2], [1, 1], [0, 0], [1, 1]), {}),
    ("grid_sampler_2d", (IMAGE, f(1, 3, 4, 2), 0, 0, False), {}), ("grid_sampler_2d", (IMAGE, f(1, 3, 4, 2), 1, 1, True), {}),
    ("upsample_bilinear2d.vec", (IMAGE, [7, 9], False, None), {}), ("upsample_bilinear2d.vec", (IMAGE, [7, 9], True, None), {}),
    ("upsample_bilinear2d.vec", (IMAGE, None, False, [2.0, 1.5]), {}), ("upsample_bicubic2d", (IMAGE, [7, 9], False), {}),
    ("upsample_nearest2d.vec", (IMAGE, None, [2.0, 2.0]), {}), ("upsample_nearest1d", (f(1, 2, 5), [8]), {}),
    ("_upsample_nearest_exact2d", (IMAGE, [7, 4]), {}), ("upsample_linear1d", (f(1, 2, 5), [8], False), {}),
    # Backward operators.
    ("threshold_backward", (X, f(2, 3, 4), 0.0), {}), ("gelu_backward", (X, f(2, 3, 4)), {}),
    ("_softmax_backward_data", (X, torch.softmax(f(2, 3, 4), 1), 1, torch.float32), {}),
    ("_log_softmax_backward_data", (X, torch.log_softmax(f(2, 3, 4), 1), 1, torch.float32), {}),
    ("embedding_dense_backward", (f(2, 3), torch.tensor([1, 1]), 4, -1, False), {}),
    ("avg_pool2d_backward", (f(1, 2, 2, 3), IMAGE, [2, 2], [2, 2], [0, 0], False, True, None), {}),
    ("_adaptive_avg_pool2d_backward", (f(1, 2, 1, 1), IMAGE), {}),
    ("native_group_norm_backward",
     (f(2, 4, 5), GROUPS, *torch.native_group_norm(GROUPS, None, None, 2, 4, 5, 2, 1e-5)[1:], f(4), 2, 4, 5, 2, [True] * 3), {}),
    ("convolution_backward",
     (f(1, 4, 3, 4), IMAGE, KERNEL, [4], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, True]), {}),
    ("_pdist_forward", (X[0],), {}), ("scatter_reduce.two", (Y, 0, i(3, 2, 4), f(2, 4), "mean"), {}),
    ("scatter_reduce.two", (Y, 0, i(3, 2, 4), f(2, 4), "amin"), {"include_self": False}),
    ("_embedding_bag_backward", (f(3, 2), i(5, 6), torch.tensor([0, 2, 2]), torch.tensor([0, 0, 2, 2, 2, 2]), torch.tensor([2, 0, 4]),
     torch.zeros(3, dtype=torch.int64), 5, False, 1, False, None), {}),
    ("_embedding_bag_per_sample_weights_backward",
     (f(2, 3), f(5, 3), i(5, 4), torch.tensor([0, 1]), torch.tensor([0, 1, 1, 1]), 0, 2), {}),
    # Layers and lists.
    ("prims::fma", (Y, Y, Y + 1), {}), ("_foreach_add.List", ([X, Y], [X, Y + 1]), {"alpha": 2}),
    ("_foreach_pow.ScalarAndTensor", (0.5, [P, Q]), {}), ("_foreach_lerp.Scalar", ([X, Y], [X + 1, Y * 2], 0.3), {}),
    ("_foreach_addcdiv.ScalarList", ([P, Q], [P, Q], [P + 1, Q + 1], [0.5, 2.0]), {}), ("_foreach_norm.Scalar", ([X, Y], 2), {}),
    ("_foreach_addcmul.Tensor", ([X, Y], [X, Y], [X, Y], torch.tensor([0.5, 2.0])), {}), ("_foreach_copy", ([P, INTS], [Q, X[0, 0, :3]]), {}),
    ("_scaled_dot_product_flash_attention_for_cpu", (f(1, 4, 3, 4), f(1, 2, 3, 4), f(1, 2, 3, 4), 0.0, True), {}),
    ("_native_multi_head_attention",
     (X, X, X, 4, 2, f(12, 4), f(12), f(4, 4), f(4), torch.arange(3) > pos(2, 1), True, True, 1), {}),
    *(("_transformer_encoder_layer_fwd",
       (X, 4, 2, f(12, 4), f(12), f(4, 4), f(4), first, first, 1e-5, pos(4), f(4), pos(4), f(4), f(8, 4), f(8), f(4, 8), f(4)), {})
      for first in (False, True)),
    # Sorting.
    ("nonzero_static", (INTS > 2,), {"size": 2, "fill_value": -2}), ("nonzero_static", (INTS > 2,), {"size": 5}),
    ("kthvalue", (X, 2, 1, True), {}), ("median", (X,), {}), ("median.dim", (NANS, 1), {}), ("nanmedian.dim", (NANS, 1), {}),
    ("nanmedian", (NANS,), {}), ("median.dim", (INTS, 0, True), {}), ("mode", (torch.tensor([[1, 4, 4, 2], [3, 3, 1, 1]]),), {}),
    ("cummax", (NANS, 1), {}), ("cummin", (torch.tensor([[3, 1, 1, 2]]), 1), {}), ("logcumsumexp", (X, 1), {}),
    ("searchsorted.Tensor", (torch.sort(Y).values, f(3, 2)), {"side": "right"}), ("histc", (X, 4, -1, 1), {}),
    ("histc", (X, 3), {}), ("dist", (X, Y, 3), {}), ("bucketize.Scalar", (0.5, torch.tensor([-1.0, 0.0, 1.0])), {}),
    # Products and matrices.
    ("transformers::grouped_mm_fallback", (f(9, 4), f(3, 4, 5), torch.tensor([5, 5, 8], dtype=torch.int32)), {}),
    ("transformers::grouped_mm_fallback_backward", (f(9, 4), f(3, 4, 5), torch.tensor([1, 7, 9]), f(9, 5)), {}),
    ("_trilinear", (f(3, 2), f(4, 2, 5), f(3, 5), [1, 3], [0], [1, 2], [2, 3]), {}),
    ("_weight_norm_interface_backward", (f(3, 4), f(3, 4), pos(3, 1), pos(3, 1), 0), {}),
    ("_cdist_backward", (f(3, 2), f(3, 4), f(2, 4), 2.0, pos(3, 2)), {}),
    ("_cdist_backward", (f(3, 2), f(3, 4), f(2, 4), 1.0, pos(3, 2)), {}),
    ("hardshrink_backward", (X, Y, 0.5), {}), ("__rshift__.Scalar", (INTS, 1), {}),
    ("_int_mm", (i(9, 17, 8).to(torch.int8), i(9, 8, 8).to(torch.int8)), {}),
    ("_addmm_activation", (f(2), Y, f(4, 2)), {"use_gelu": True}),
    ("_linalg_eigh", (SQUARE + SQUARE.mT, "L", False), {}), ("_linalg_svd", (X, False, False), {}),
    ("linalg_solve_triangular", (SQUARE, X), {"upper": False}),
    ("linalg_solve_triangular", (SQUARE[0], f(2, 4, 3)), {"upper": True, "left": False, "unitriangular": True}),
    ("triangular_solve", (X, SQUARE, True, True), {}), ("cholesky_solve", (X, SQUARE.tril()), {}),
    ("cholesky_inverse", (SQUARE[0].tril(),), {}), ("linalg_matrix_exp", (torch.stack([SQUARE[0], 3 * SQUARE[1]]),), {}),
    ("linalg_lu_solve", (*torch.linalg.lu_factor(SQUARE[0]), f(2, 4, 3)), {"left": False}),
    ("lu_unpack", torch.linalg.lu_factor(SQUARE), {}),
    ("linalg_lu", (SQUARE,), {}), ("linalg_pinv.atol_rtol_tensor", (X,), {"rtol": torch.tensor(1e-3)}),
    # Windows and images.
    ("adaptive_max_pool2d", (IMAGE, [3, 4]), {}), ("adaptive_max_pool3d", (f(1, 1, 3, 4, 5), [1, 2, 3]), {}),
    ("adaptive_max_pool2d_backward", (f(1, 2, 3, 4), IMAGE, torch.ops.aten.adaptive_max_pool2d(IMAGE, [3, 4])[1]), {}),
    ("avg_pool3d_backward", (f(1, 1, 1, 2, 2), f(1, 1, 2, 4, 4), [2, 2, 2], [], [0, 0, 0], False, True, None), {}),
    ("grid_sampler_2d", (IMAGE, 2 * f(1, 3, 4, 2), 2, 0, False), {}), ("grid_sampler_2d", (IMAGE, 2 * f(1, 3, 4, 2), 0, 2, True), {}),
    ("grid_sampler_3d", (f(1, 2, 3, 4, 5), f(1, 2, 3, 4, 3), 0, 1, False), {}),
    ("grid_sampler_2d_backward", (f(1, 2, 3, 4), IMAGE, f(1, 3, 4, 2), 0, 0, False, [True, True]), {}),
    ("upsample_bilinear2d_backward", (f(1, 2, 7, 9), [7, 9], [1, 2, 5, 6], False), {}),
    ("upsample_nearest2d_backward", (f(1, 2, 10, 12), [10, 12], [1, 2, 5, 6]), {}),
    ("_upsample_bilinear2d_aa", (IMAGE, [3, 4], False), {}), ("_upsample_bicubic2d_aa", (IMAGE, [3, 8], False), {}),
    ("_upsample_bicubic2d_aa", (IMAGE, [3, 4], True), {}), ("replication_pad2d_backward", (f(1, 2, 6, 9), IMAGE, [1, 2, 0, 1]), {}),
    # Others.
    ("index_reduce", (X, 1, torch.tensor([2, 2]), f(2, 2, 4), "amax"), {}),
    ("index_reduce", (X, 1, torch.tensor([2, 0]), f(2, 2, 4), "mean"), {"include_self": False}),
    ("put", (X, torch.tensor([3, 1]), f(2)), {}), ("masked_scatter_backward", (X, X > 0, [3, 5]), {}),
    ("diagonal_scatter", (X, f(2, 3), 1, 1, 2), {}), ("as_strided_scatter", (Y, f(2, 2), [2, 2], [5, 1], 1), {}),
    ("view.dtype", (X, torch.int32), {}), ("copysign.Tensor", (X, -pos(4)), {}), ("signbit", (X,), {}), ("hypot", (X, Y), {}),
    ("i0", (X,), {}), ("special_i1e", (X,), {}), ("special_ndtri", (P / 3,), {}), ("ldexp.Tensor", (X, i(5, 4)), {}),
    ("gcd", (INTS, MORE), {}), ("polygamma", (2, P), {}), ("special_zeta", (P + 1, P), {}), ("special_erfcx", (X,), {}), ("lcm", (INTS, MORE), {}), ("range.step", (1, 9, 2), {}), ("fft_fftfreq", (5, 0.5), {}),
    ("kaiser_window.beta", (5, True, 8.0), {}), ("hamming_window.periodic_alpha", (6, False, 0.6), {}),
    # Data-dependent shapes.
    ("bincount", (torch.tensor([1, 4, 1]),), {"minlength": 3}), ("bincount", (torch.tensor([2, 0, 2]), INTS[0] / 4), {"minlength": 5}),
    ("repeat_interleave.Tensor", (torch.tensor([2, 0, 3]),), {}),
    ("repeat_interleave.Tensor", (torch.tensor([0, 1, 3]),), {"output_size": 4}),
]  # fmt: skip


class Network(nn.Module):
    """Convolution, batch norm, pooling, and one layer of each kind of transformer sublayers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4)
        self.embedding, self.row = nn.Embedding(7, 4), nn.LayerNorm(4)
        self.attention = nn.TransformerEncoderLayer(4, 2, 8, 0.0, "gelu", batch_first=True)
        self.head = nn.Linear(4, 3)

    def forward(self, image: Any, words: Any) -> dict[str, Any]:
        found = torch.max_pool2d(torch.relu(self.norm(self.conv(image))), 2).flatten(2).transpose(1, 2)
        both = self.attention(torch.cat([found, self.row(self.embedding(words))], 1))
        return {"scores": self.head(both.mean(1)), "attended": both}


class Decided(nn.Module):
    """Conditionals, loops, data-dependent sizes, complex arrays and decompositions, which are not single operators."""

    def __init__(self) -> None:
        super().__init__()
        self.sums, self.largest = nn.EmbeddingBag(7, 4, padding_idx=2), nn.EmbeddingBag(7, 4, mode="max")

    def forward(self, x: Any, words: Any, cuts: Any) -> dict[str, Any]:
        positive = x > 0
        rows = torch.index_put(x, (positive[:, 0],), x[:1] * 2)
        pairs = torch.view_as_complex(x.reshape(5, 2, 2)) * torch.polar(x[:, :2], x[:, 2:])
        spectrum = torch.fft.rfft(x) / 2
        last = words[-1].item()
        torch._check(last >= 0)
        return {
            "kept": x[positive[:, 0]].sum(0),
            "columns": x[:, positive[1]].sum(1),
            "places": torch.nonzero(positive).sum(0),
            "selected": torch.masked_select(x, positive).sum(),
            "unique": torch.unique(words).sum(),
            "counted": torch.arange(last).sum() + last,
            "repeated": torch.repeat_interleave(x, cuts, dim=1).sum(1),
            "runs": torch.cat([r.sum(0, keepdim=True) for r in torch.unique_consecutive(words, True, True)]),
            "put": torch.index_put(rows, (positive,), -x.sum(), accumulate=True),
            "bags": torch.cat([self.sums(words, cuts), self.largest(words, cuts)], 1),
            "turned": torch.view_as_real(pairs.transpose(0, 1)),
            "filtered": torch.fft.irfft(spectrum * spectrum.conj() + spectrum, n=4),
            "spectrum": torch.fft.fft(torch.fft.ifft(x, dim=0), norm="ortho").abs(),
            "joined": torch.view_as_real(nn.functional.pad(torch.cat([pairs, x[:, :2]], 1), (1, -1), value=2.0)),
            "solved": torch.linalg.solve(torch.stack([x.T @ x + torch.eye(4)] * 4), x[:4]),
            "triangle": torch.linalg.qr(x, mode="r")[1].abs(),
            "inverse": torch.linalg.inv(x.T @ x + torch.eye(4)),
            "branch": torch.cond(x.sum() > 0, lambda x: x.relu() + 1, lambda x: x.abs() * 2, (x,)),
            "doubled": while_loop(lambda n, y: y.sum() < 100, lambda n, y: (n + 1, 2 * y), (cuts[0] + 0, x.abs() + 1))[1],
        }


def recorded_op(op: str, args: Any, kwargs: dict[str, Any]) -> tuple[FxGraph, list[Any], list[Any]]:
    """Return the graph of one call, its inputs and its results."""
    packet, _, overload = op.partition(".")
    library, _, name = packet.rpartition("::")
    function = getattr(getattr(getattr(torch.ops, library or "aten"), name), overload or "default")
    assert operator_name(function) == op, (operator_name(function), op)
    inputs: list[Any] = []

    def ref(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            inputs.append(value)
            return ValueRef(f"x{len(inputs) - 1}")
        return [ref(v) for v in value] if isinstance(value, list | tuple) else convert_argument(value)

    node = FxNode("y", op, [ref(a) for a in args], {k: ref(v) for k, v in kwargs.items()}, "model.py", 7, "layer")
    result = function(*args, **kwargs)
    nodes, results = [node], [result]
    names = ["y"]
    if not isinstance(result, torch.Tensor):
        kept = [k for k, r in enumerate(result) if isinstance(r, torch.Tensor) and (r.numel() or not k)]
        names, results = [f"y{k}" for k in kept], [result[k] for k in kept]
        nodes += [FxNode(f"y{k}", "operator.getitem", [ValueRef("y"), k]) for k in kept]
    infos = [tensor_info(f"x{k}", t) for k, t in enumerate(inputs)]
    return FxGraph(infos, nodes, list(map(ValueRef, names)), list(map(tensor_info, names, results))), inputs, results


def factors(x: Any) -> Any:
    """Compute gradients that solve systems with the factors of the forward pass."""
    solved = torch.linalg.solve(x, x[..., :2].sin())
    root = torch.linalg.cholesky(x @ x.mT + torch.eye(3))
    return torch.linalg.det(x).sum() + torch.linalg.slogdet(x.mT)[1].sum() + solved.square().sum() + root.sum()


def trained(name: str, loss: Any, *given: Any) -> list[tuple[str, FxGraph, list[Any], list[Any]]]:
    """Return the forward and backward graphs of a training step run by PyTorch."""
    found: list[tuple[str, FxGraph, list[Any], list[Any]]] = []

    def compile(part: Any, examples: Any) -> Any:
        backend._remove_assertions(part)
        read = AotGraph.of(part, has_views=False)

        def run(arguments: list[Any]) -> Any:
            inputs = [arguments[k].detach().clone() for k in read.tensors]
            results = list(part(*arguments))
            tensors = [
                (t.permute(*np.argsort(r.permutation)) if isinstance(r, DenseResult) and r.permutation else t).detach().clone()
                for t, r in zip(results, read.results, strict=True)
                if isinstance(r, DenseResult | StridedResult)
            ]
            found.append((f"{name}_{('forward', 'backward')[len(found)]}", read.graph, inputs, tensors))
            return results

        run._boxed_call = True
        return run

    aot = backend._common.aot_autograd(
        fw_compiler=compile, bw_compiler=compile, decompositions=backend.decompositions(),
        partition_fn=backend._partitioners.min_cut_rematerialization_partition,
    )  # fmt: skip
    torch.compile(loss, backend=aot)(*given).backward()
    return found


def main() -> None:
    """Write the records."""
    graphs: dict[str, Any] = {}
    arrays: dict[str, Any] = {}

    def keep(name: str, graph: FxGraph, inputs: list[Any], results: list[Any]) -> None:
        graphs[name] = graph_to_json(graph)
        arrays.update({f"{name}/in{k}": tensor_to_array(t) for k, t in enumerate(inputs)})
        arrays.update({f"{name}/out{k}": tensor_to_array(t) for k, t in enumerate(results)})
        arrays.update({f"{name}/const/{key}": value for key, value in graph.constants.items()})

    for number, (op, args, kwargs) in enumerate(CASES):
        keep(f"{number:03}_{op}", *recorded_op(op, args, kwargs))
    network, inputs = Network().eval(), (f(2, 1, 6, 6), i(7, 2, 3))
    with torch.no_grad():
        keep(
            "network",
            convert_exported_program(torch.export.export(network, inputs), "network"),
            list(inputs),
            list(network(*inputs).values()),
        )
        decided, inputs = Decided().eval(), (f(5, 4), torch.tensor([3, 0, 2, 2, 6, 1, 3]), torch.tensor([0, 2, 2, 5]))
        graph = convert_exported_program(torch.export.export(decided, inputs), "decided")
        keep("decided", graph, list(inputs), list(decided(*inputs).values()))
    network = Network()
    steps = [
        *trained("step", lambda *given: network(*given)["scores"].square().sum(), f(2, 1, 6, 6), i(7, 2, 3)),
        *trained("factors", factors, SQUARE.clone().requires_grad_()),
    ]
    for name, graph, given, results in steps:
        keep(name, graph, given, results)
    overloads = [getattr(p, o) for n in dir(torch.ops.aten) for p in [getattr(torch.ops.aten, n)] if hasattr(p, "overloads")
                 for o in p.overloads()]  # fmt: skip
    core = sorted({operator_name(op) for op in overloads if torch.Tag.core in op.tags})
    RECORDED.write_text(json.dumps({"core": core, "graphs": graphs}, separators=(",", ":")) + "\n")
    np.savez_compressed(ARRAYS, **arrays)
    print(f"{len(graphs)} graphs, {RECORDED.stat().st_size + ARRAYS.stat().st_size} bytes")


if __name__ == "__main__":
    main()
